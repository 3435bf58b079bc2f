"""The program that `spark-submit` runs, alone in its folder.

Python first searches the folder of a program for modules, and some commands have names of Python's own modules, such as
`inspect`.
"""
