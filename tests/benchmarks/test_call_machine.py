"""How a dump of Callgrind is read."""

from benchmarks.call_machine import costs_of

DUMP = """\
# callgrind format
version: 1
positions: line
events: Ir
summary: 40

ob=(1) /usr/lib/libpython3.so
fl=(1) ceval.c
fn=(1) eval
10 7
+5 3
cob=(2) /usr/lib/libc.so
cfi=(2) string.c
cfn=(2) copy
calls=2 +27
* 20
-1 1

ob=(2)
fl=(2)
fn=(2)
75 20

ob=(1)
fl=(1)
fn=(1)
fi=(3) object.h
142 9
"""


def test_a_function_has_its_own_instructions_and_not_those_of_what_it_calls() -> None:
    assert costs_of(DUMP) == {"libpython3.so:eval": 20, "libc.so:copy": 20}
