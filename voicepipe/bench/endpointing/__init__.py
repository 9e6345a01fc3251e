"""`voicepipe bench endpointing`: when a strategy ends the turns of labelled speech, and what that costs the user."""
