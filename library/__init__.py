"""What programs call besides loops: linear algebra and random numbers.

All of it is written as anybody could write it from outside. What a library computes is ``foreign``, with a rule by
``custom_vjp``; the rest are programs of the language. So it runs in every interpretation, and has derivatives.
"""
