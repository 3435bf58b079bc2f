"""The program that `spark-submit` runs, alone in its folder.

Python looks for modules in the folder of a program first, and some commands have names of Python's library, such as
`inspect`.
"""
