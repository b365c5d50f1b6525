"""What every front end's verbs have to do, written once: see verbs.py and front_end.py."""
