"""What a change of style does to pictures: does it reach the look, and what does it cost?"""
