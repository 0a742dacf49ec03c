"""What the screens say: values in, lines out; nothing is drawn here."""
