"""Knowledge graph of the five organs: anatomy, findings, impressions, histology, risk, staging."""
