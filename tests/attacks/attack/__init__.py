"""Attacks on a running server, what they are measured with, and the users who must not feel them.

An attack is an async function of a `Target`. `catalog` names all of them; the tests beside this package hold a server
to what it promises under each, and `measure.py` prints what innocent users feel.
"""
