"""Plausibility: is a scan an abdominal CT, and does a label map belong to it?"""
