"""Organs and their names, substructures, TNM staging."""
