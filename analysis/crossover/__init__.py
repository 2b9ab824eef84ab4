"""From which size the GPU wins, along families of problems, and where the time of a call goes.

Imports the ground and roofline.
"""
