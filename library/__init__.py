"""What programs call besides loops: functions of libraries, as operations with rules for their derivatives.

Each is written as anybody could write it from outside: ``foreign`` for what it computes, ``custom_vjp`` for how it is
differentiated. So all of them run in every interpretation, and compiled code calls them back.
"""
