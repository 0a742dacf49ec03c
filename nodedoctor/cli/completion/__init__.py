"""`nodedoctor completion SHELL`: a script that lets a shell complete our options, checks, tags and words.

It is made from the parsers and from everything that can be looked up, so that neither can be forgotten, and
holds all of it: no key press starts Python.
"""
