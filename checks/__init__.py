"""The checks that ship with nodedoctor: one file per subject, one function per check."""
