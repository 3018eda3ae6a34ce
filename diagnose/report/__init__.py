"""A diagnosis for people and for programs. Pure: objects in, text out."""
