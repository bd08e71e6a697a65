"""One-line templates, each for one construct of the language. `messages` and `tools` are those of the
conversation "tools" in template_families.py."""

EXPRESSIONS = r"""
1 + 2 * 3 ** 2 - 4
2 ** 3 ** 2
-2 ** 2
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 % -3
7 / 2
7.5 // 2, -7.5 % 2
1 / 0
1 % 0
1e16, 1e15, 123456789.125, 1e-4, 1e-5, 0.1 + 0.2, 100.0, 5e-324, 1.5e300
1_000, 0x1f, 0b101, 0o17
010
1.
'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1, 'x'] ~ nope
'a' + 1
'ab' * 3, 3 * 'ab', 'ab' * -1
[1, 2] + [3]
[1, 2] * 2
(1, 2) + (3,)
[1] + (2,)
'a' 'b' "c"
'\x41\u00e9\U0001F600\n\t\\\'\"\q\101'
'it''s'
"it's"
['it\'s', "say \"hi\"", 'both \' and "', 'new\nline', 'tab\t', 'é', '\x00\x7f\u200b\u3000']
true, True, false, False, none, None
[], {}, (), (1,), [[]], {'a': {'b': [1, 2.5, none, true]}}
{'a': 1, 'b': 2, 'a': 3}
{1: 'x', 2.5: 'y', none: 'z', true: 'w'}
{[1]: 2}
{(1, 2): 3}[(1, 2)]
1 < 2 < 3, 1 < 2 > 3, 1 == 1.0 == true
1 < 2 == true
'a' < 'b', 'Z' < 'a', 'é' > 'z'
[1, 2] < [1, 3], (1,) < (1, 0)
1 < 'a'
none < 1
none == none, none != 0, 0 == false, '' == false
[1, [2, {'a': 3}]] == [1, [2, {'a': 3.0}]]
'a' in 'cat', 'x' not in 'cat', 1 in [1, 2], 'a' in {'a': 1}, 3 not in (1, 2)
1 in 'cat'
'a' in nope
'a' in none
not true, not 0, not '', not [], not nope
not 1 == 2
true and 'x', false and 'x', 0 or 'y', 'z' or 'y'
'yes' if true else 'no'
'yes' if false else 'no'
'yes' if false
('yes' if false) is defined
1 if true else 2 if false else 3
nope
nope.x
nope['x']
nope()
nope + 1
nope ~ 'x'
nope is defined, messages is defined
nope is undefined
nope == nope, nope == none, nope != 1
nope | length
nope | list
nope | default('d'), '' | default('d'), '' | default('d', true), none | default('d'), none | d('e', boolean=true)
messages[0].nope is defined
messages[0].nope.x
none.x is defined
none['x']
(1).x
messages[0]['role'], messages[0].role, messages[0].get('role'), messages[0].get('x'), messages[0].get('x', 'y')
messages[-1].role, messages[99] is defined, messages[1:3] | length
messages[::-1][0].role
messages.0.role
'hello'[1], 'hello'[-1], 'hello'[1:3], 'hello'[::-1], 'hello'[::2], 'hello'[-3:], 'hello'[:-1], 'hello'[10:], 'hello'[99] is defined
'héllo wörld'[1], 'héllo wörld'[::-1], 'héllo'[1:4:2], '日本語'[-1]
[1, 2, 3, 4, 5][1:4:2], [1, 2, 3][::-1], [1, 2, 3][5:], [1, 2, 3][-100:100], (1, 2, 3)[1:]
[1, 2, 3][::0]
nope[1:]
[1, 2][true]
[1, 2][1.0] is defined
{'items': 1}.items() | list, 2
{'items': 1}['items']
{'x': 1}.items() | list
{'x': 1, 'y': 2}.keys(), {'x': 1}.values(), {'x': 1}.items()
{'x': 1}.keys() | list | first
{'x': 1}.items()[0] is defined
{'x': 1}.pop('x')
[1].append(2)
'a,b,,c'.split(','), 'a b  c '.split(), 'a b  c'.split(' '), 'a,b,c'.split(',', 1), ''.split(), ''.split(','), ' a b c '.split(none, 1)
'a,b,c'.rsplit(',', 1), ' a b c '.rsplit(none, 1), 'a b'.rsplit()
'a'.split('')
'</think>x</think>y'.split('</think>')[-1].lstrip('\n')
' x '.strip() ~ '|' ~ ' x '.lstrip() ~ '|' ~ ' x '.rstrip() ~ '|' ~ 'xxaxx'.strip('x') ~ '|' ~ 'abcba'.strip('ab') ~ '|' ~ 'éaé'.strip('é')
'\u00a0\u2003x\u3000\x1f'.strip() ~ '|'
'hello'.startswith('he'), 'hello'.endswith('lo'), 'hello'.startswith(('x', 'h')), 'hello'.startswith('l', 2), 'hello'.endswith(['lo'])
'Hello World'.upper(), 'Hello World'.lower(), 'hello world'.title(), "they're here".title(), 'hELLO wORLD'.capitalize()
'straße'.upper(), 'ǆ'.title(), 'ΑΣ ΑΣΑ'.lower(), 'İ'.lower() | length, 'ﬁn'.title(), 'ß'.capitalize(), 'STRASSE'.casefold()
'a-b-a'.replace('a', 'x'), 'aaa'.replace('a', 'b', 2), 'abc'.replace('', '-'), 'abc'.replace('b', '')
', '.join(['a', 'b']), ''.join('abc'), '-'.join({'a': 1, 'b': 2})
', '.join([1, 2])
'hello'.find('l'), 'hello'.rfind('l'), 'hello'.find('x'), 'hello'.index('e'), 'hello'.count('l'), 'héllo'.find('l')
'hello'.index('x')
'a=b=c'.partition('='), 'a=b=c'.rpartition('='), 'abc'.partition('='), 'abc'.rpartition('=')
'prefix-x'.removeprefix('prefix-'), 'x.py'.removesuffix('.py'), 'x'.removeprefix('y')
'12'.isdigit(), '1.2'.isdigit(), ''.isdigit(), 'ab'.isalpha(), 'a1'.isalnum(), ' \t'.isspace(), 'AB'.isupper(), 'aB'.islower(), '½'.isnumeric(), '²'.isdigit(), '²'.isdecimal()
'a\nb\r\nc\x0bd\n'.splitlines(), 'a\nb'.splitlines(true), ''.splitlines()
[1, 2, 1].count(1), [1, 2].index(2), (1, 1).count(1)
[1].index(5)
'  trim me \n' | trim ~ '|' ~ ('xxaxx' | trim('x')) ~ '|' ~ (1 | trim)
'abc' | length, [1, 2] | count, {'a': 1} | length, '日本' | length, range(4) | length
1 | length
none | length
'abc' | upper | lower | capitalize
'hello world-foo (bar) <baz x_y' | title
'HELLO wörld' | capitalize
[1, 2, 3] | join(', '), ['a', 1, none] | join, 'abc' | join('-'), {'a': 1, 'b': 2} | join('+'), nope | join(',')
messages | map(attribute='role') | join(',')
messages | map(attribute='nope', default='-') | join(',')
messages | map(attribute='role') | list
['a', ' b '] | map('trim') | map('upper') | list
['1', '2'] | map('int') | sum
[{'a': {'b': 1}}, {'a': {'b': 2}}] | map(attribute='a.b') | list
[[1, 2], [3, 4]] | map(attribute=1) | list, [[1, 2], [3, 4]] | map(attribute='0') | list
[1, 2] | map | list
messages | selectattr('role', 'equalto', 'user') | list | length
messages | selectattr('role', 'eq', 'user') | map(attribute='content') | first
messages | rejectattr('role', 'in', ['user', 'assistant']) | map(attribute='role') | list
messages | selectattr('tool_calls', 'defined') | list | length
messages | selectattr('tool_calls') | list | length
messages | selectattr('role', 'ne', 'user') | first | length > 0
[1, 2, 3, 4] | select('odd') | list, [1, 2, 3, 4] | reject('divisibleby', 2) | list, [0, 1, '', 'x'] | select | list
[1, 2, 3, 4] | select('>', 2) | list
messages | selectattr('role', 'equalto', 'user') | length
(messages | selectattr('role', 'equalto', 'nobody')) is iterable
'x' if messages | selectattr('role', 'equalto', 'nobody') else 'y'
[3, 1, 2] | first, [3, 1, 2] | last, 'abc' | first, 'abc' | last, {'a': 1, 'b': 2} | first, [] | first is defined
[] | last
'abc' | reverse, [1, 2, 3] | reverse | list, {'a': 1, 'b': 2} | reverse | list
[3, 1, 2] | sort, ['b', 'A', 'c'] | sort, ['b', 'A', 'c'] | sort(case_sensitive=true), [3, 1, 2] | sort(reverse=true), [1, 2] | sort(true)
[{'a': 2}, {'a': 1}] | sort(attribute='a')
[{'a': 2, 'b': 1}, {'a': 1, 'b': 5}, {'a': 1, 'b': 3}] | sort(attribute='a,b')
[1, 'a'] | sort
['b', 'a', 'B', 'a'] | unique | list, ['b', 'B'] | unique(true) | list
{'b': 1, 'a': 2} | dictsort, {'b': 1, 'a': 2} | dictsort(by='value'), {'b': 1, 'A': 2} | dictsort(true), {'b': 1, 'a': 2} | dictsort(reverse=true)
{'b': 1} | items | list, nope | items | list
[1] | items | list
[1, 5, 3] | max, [1, 5, 3] | min, ['b', 'A'] | min, [] | max is defined, [{'a': 2}, {'a': 7}] | max(attribute='a')
[1, 2, 3] | sum, [1.5, 2] | sum, [{'a': 2}, {'a': 7}] | sum(attribute='a'), [] | sum(start=5)
[1, 2, 3, 4, 5] | batch(2) | list, [1, 2, 3] | batch(2, 'x') | list
'abc' | list, {'a': 1} | list, range(3) | list
1 | list
'42' | int, '4.7' | int, 'x' | int, 'x' | int(5), '0x1f' | int(base=16), 3.9 | int, none | int, true | int, ' 7 ' | int, '-3' | int, '1_0' | int, [] | int(9)
nope | int
'1.5' | float, 'x' | float, 'x' | float(2.5), 3 | float, '1e3' | float, none | float, 'inf' | float
-3 | abs, (-3) | abs, -2.5 | abs
2.5 | round, 3.5 | round, 2.675 | round(2), 7 | round, 2.4 | round(method='ceil'), 2.6 | round(0, 'floor'), 1234.5 | round(-2), 1250 | round(-2), 0.5 | round
2.5 | round(method='x')
1 | string + 'x', none | string, [1] | string
'<a href="x">\'&' | escape ~ ('<' | e)
'<b>' | safe
'a\nb\n\nc' | indent, 'a\nb' | indent(2, true), 'a\n\nb' | indent(2, blank=true), 'a\nb' | indent('> '), 'a\n' | indent(1) ~ '|'
'%s is %d' | format('x', 3), '%(a)s' | format(a=1), '%5.2f|%-5s|%05d|%x|%%|%+d' | format(3.14159, 'ab', 42, 255, 7)
'%s' % 'x', '%s-%s' % (1, 2), '%r' % 'x', '%(k)s' % {'k': 'v'}
'%s %s' % 'x'
'x' % 1
'%d' % 'x'
{'a': [1, 2.5, true, none, 'é"\n\x01/'], 'b': {}} | tojson
{'a': [1, {'b': []}], 'c': {}} | tojson(indent=2)
[1, 2] | tojson(indent=4), [] | tojson(indent=2), 'x' | tojson(indent=1)
{'a': 1} | tojson(separators=(',', ':')), {'b': 1, 'a': 2} | tojson(sort_keys=true), 'é😀' | tojson(ensure_ascii=true), {'a': 1} | tojson(indent='--')
{1: 2, none: 3, true: 4, 2.5: 5} | tojson
{(1, 2): 3} | tojson
'<b>&\'' | tojson
1e20 | tojson, 1.0 | tojson, (1, 2) | tojson
nope | tojson
range(3) | tojson
tools | tojson
tools[0] | tojson(indent=4)
messages[0] | tojson
messages | selectattr('role') | tojson
tools[0]
messages[0]
range(3), range(1, 4), range(0, 10, 3), range(3, 0, -1)
range(5)[2], range(5) | last, range(5)[-1], range(5)[1:3] | list
range(10 ** 12)
range(0)  | list, range(5, 0) | list
range(1, 2, 0)
range('a')
dict(a=1, b='x'), dict([('a', 1)]), dict({'a': 1}, b=2)
dict(1)
namespace(a=1).a, namespace({'b': 2}).b, namespace().c is defined
namespace(a=1)
raise_exception('no')
strftime_now('%Y-%m-%d'), strftime_now('%d %b %Y %H:%M:%S %A %B')
1 is integer, 1.0 is integer, true is integer, 1.0 is float, 1 is number, true is number, 'x' is number
'x' is string, [] is string, {} is mapping, [] is mapping, [] is sequence, {} is sequence, 'x' is sequence, 1 is sequence, () is sequence
[] is iterable, 1 is iterable, 'x' is iterable, {} is iterable, none is iterable, nope is iterable, nope is sequence
true is true, 1 is true, false is false, 0 is false, true is boolean, 1 is boolean, none is none, nope is none
3 is odd, 4 is even, 9 is divisibleby 3, 9 is divisibleby(2), 2.0 is even
'a' is odd
1 is eq 1, 1 is equalto(2), 1 is ne 2, 1 is lt 2, 1 is le 1, 2 is gt 1, 1 is ge 2, 1 is sameas 1, 'a' is in ['a'], 'a' is in('abc'), 3 is lessthan 4, 3 is greaterthan 4
'abc' is lower, 'ABC' is upper, 'Abc' is lower
1 is not none, nope is not defined, not nope is defined
range is callable, 'x' is callable, raise_exception is defined, strftime_now is defined
1 is odd is even
1 is nosuchtest
1 | nosuchfilter
[1] | map('nosuchfilter') | list
nosuchfunction()
'x'.nosuchmethod()
messages.__class__.__mro__
(1, 2
[1, 2
{'a': 1
1 +
1 2
'unterminated
a b
{'a' 1}
f(a=1, 2)
(((1))) + ((2))
messages[0].content is string and messages[0].content | length > 3
9223372036854775807 + 0
--1, +1, -'a'
- 2 | abs
2 * -3
[1, 2, 3,], {'a': 1,}, (1, 2,)
true.x is defined
loop is defined
'é' ~ '日本' ~ '😀' | upper
'😀a' | length, '😀a'[0], '😀a'[1:]
(messages | first).role
messages | first.role
'a' is string == true
'A' if 1 is odd else 'B'
[1, 2] is sameas [1, 2]
"x" in ["x"] and not "y" in ["x"]
1.5.x is defined
'ab'.join is defined
{'a': 1}.a.b is defined
{'a': none}.a is none
[[1, 2], [3]] | sum(start=[])
['a'] | join(',', attribute='x')
'a\tb' | replace('\t', ' '), 'aaa' | replace('a', 'b', 1), 5 | replace(5, 6)
"%.3s|%10s|%-10s|" % ('abcdef', 'é', 'é')
""".strip().split("\n")

BLOCKS = [
    "{% if true %}a{% endif %}b",
    "{% if 0 %}a{% elif '' %}b{% elif 1 %}c{% else %}d{% endif %}",
    "{% if false %}a{% else %}d{% endif %}",
    "{% for x in [1, 2, 3] %}{{ x }},{% endfor %}",
    "{% for x in [] %}a{% else %}none{% endfor %}",
    "{% for x in nope %}a{% else %}none{% endfor %}",
    "{% for x in none %}a{% endfor %}",
    "{% for x in 5 %}a{% endfor %}",
    "{% for x in [1, 2, 3, 4] if x % 2 == 0 %}{{ loop.index }}:{{ x }} {% else %}none{% endfor %}",
    "{% for x in [1] if x > 5 %}a{% else %}none{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2} | items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2} | dictsort(reverse=true) %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}",
    "{% for k in {'a': 1} %}{{ k }}{% endfor %}",
    "{% for c in 'héy' %}[{{ c }}]{% endfor %}",
    "{% for x in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('o', 'e') }};{% endfor %}",
    "{% for x in [1, 2] %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for x in [1, 2] %}{% for y in [3, 4] %}{{ loop.index }}{{ x }}{{ y }} {% endfor %}{{ loop.index }};{% endfor %}",
    "{% for x in [1, 2, 3, 4] %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in [1, 2, 3, 4] %}{% if x == 3 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in [1, 2] %}{% for y in [1, 2, 3] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}",
    "{% break %}",
    "{% for x in [1] %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for loop in [1] %}{% endfor %}",
    "{% for x in messages[::-1] %}{{ x.role }}{{ loop.index0 }} {% endfor %}",
    "{% for x in range(3) | reverse %}{{ x }}{% endfor %}",
    "{% for x in [1, 2] recursive %}{{ x }}{% endfor %}{# refused here #}{{ 1 / 0 }}",
    "{% set x = 1 %}{{ x }}{% set x = x + 1 %}{{ x }}",
    "{% set a, b = 1, 2 %}{{ b }}{{ a }}",
    "{% set a, b = [1, 2, 3] %}{{ a }}",
    "{% set x = 1, 2 %}{{ x }}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 10 %}{{ x }} {% endfor %}{{ x }}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% for i in [1, 2] %}{% if loop.first %}{% set y = 5 %}{% endif %}{{ y }};{% endfor %}{{ y }}",
    "{% set ns = namespace(x=1, found=false) %}{% for i in [1, 2, 3] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.found }}{{ ns.nope is defined }}",
    "{% set ns = namespace() %}{% set ns.a = 'x' %}{{ ns.a }}{{ ns['a'] }}",
    "{% set ns = {} %}{% set ns.a = 1 %}",
    "{% set nope.a = 1 %}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "{% set x %}a{{ 1 + 1 }}b{% endset %}{{ x | upper }}",
    "{% set x | upper | trim %} a{{ 1 }}b {% endset %}[{{ x }}]",
    "{% set ns = namespace() %}{% set ns.x %}abc{% endset %}{{ ns.x }}",
    "{% set true = 1 %}",
    "{% set 'a' = 1 %}",
    "{% set x %}{% set inner = 3 %}{{ inner }}{% endset %}{{ x }}{{ inner }}",
    "{% macro f(a, b=2) %}{{ a }}-{{ b }};{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(a=4) }}{{ f(b=5, a=6) }}{{ f() }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(z=2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}",
    "{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}",
    "{% macro f(a=1, b) %}{% endmacro %}",
    "{% macro f(a, a) %}{% endmacro %}{{ f(1, 2) }}{{ 1 / 0 }}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}{{ later }}{% endmacro %}{% set later = 7 %}{{ f() }}",
    "{% set x = 1 %}{% macro f() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ f() }}{{ x }}",
    "{% macro f(x) %} {{ x }} {% endmacro %}[{{ f('a') | trim }}][{{ f('b').strip() ~ '!' }}]",
    "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, z=3) }}",
    "{% macro f(x) %}{{ x }}{{ caller() }}{% endmacro %}{% call f(1) %}body{% endcall %}",
    "{% macro f() %}{{ caller('u', 2) }}{% endmacro %}{% call(a, b) f() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro f() %}x{% endmacro %}{% call f() %}body{% endcall %}",
    "{% call 1 %}x{% endcall %}",
    "{% macro f(t) %}{% for x in t %}{% if x is mapping %}{{ f(x.values()) }}{% else %}{{ x }},{% endif %}{% endfor %}{% endmacro %}{{ f([1, {'a': 2, 'b': 3}]) }}",
    "{{ f(1) }}{% macro f(a) %}{{ a }}{% endmacro %}",
    "{% filter upper %}abc{{ 'x' }}{% endfilter %}",
    "{% filter trim | replace('a', 'b') %}  abc a {% endfilter %}|",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}",
    "{% generation %}abc{{ 1 }}{% endgeneration %}d",
    "{% for m in messages %}{% generation %}{{ m.role }}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "{% generation %}{% set z = 1 %}{{ z }}{% endgeneration %}{{ z }}",
    "{% raw %}{{ x }}{% if %}{# c #}{% endraw %}",
    "{%- raw -%}  {{ x }} {%- endraw -%}  y",
    "a {% raw %}\n  b\n  {% endraw %}\nc",
    "{% raw %}x",
    "a{# comment {{ x }} #}b",
    "a {#- comment -#} b",
    "a\n  {# comment #}\nb",
    "a{# unclosed",
    "a\n  {% if true %}\n  b\n  {% endif %}\nc",
    "a\n  {%+ if true %}\n  b\n  {%+ endif %}\nc",
    "a\n  {%- if true -%}\n  b\n  {%- endif -%}\nc",
    "a\n  {% if true +%}\n  b\n  {% endif +%}\nc",
    "a\n  {{ 1 }}\n  {{- 2 -}}\n  b",
    "  {% if true %}x{% endif %}  \n y",
    "x  {% if true %}y{% endif %}\n\n z",
    "{% if true %}\n\n a{% endif %}\n",
    "a\n",
    "a\n\n",
    "a\r\nb\rc\n",
    "\n{% if true %}\r\n  a\r\n{% endif %}\r\nb",
    "{{ 'a\r\nb' }}",
    "a\u00a0{%- if true %}b{% endif %}\u2003{#- x #}c",
    "\t{% set x = 1 %}\t{% set y = 2 %} \n  z",
    "{{ '{{' }}{{ '}}' }}{{ '{%' }}{ {x} %} }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': 1}}}",
    "{{ {'a': {'b': 1}} }}",
    "{% if x: %}a{% else: %}b{% endif %}",
    "{{-1}}{{ -1 }}{{- 2 }}",
    "{% if %}a{% endif %}",
    "{% if true %}a",
    "{% if true %}a{% endfor %}",
    "{% endif %}",
    "{% nosuchtag %}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{{ }}",
    "{{ 1",
    "{% %}",
    "{{ 1 }",
    "{% for x in %}{% endfor %}",
    "{% for in [1] %}{% endfor %}",
    "{% set %}",
    "{% set g = messages | selectattr('role', 'equalto', 'user') %}{{ g | list | length }}{{ g | list | length }}",
    "{% set r = [1, 2] | reverse %}{% for x in r %}{{ x }}{% endfor %}{% for x in r %}{{ x }}{% endfor %}",
    "{% set r = [1, 2].copy() + [3] %}{{ r }}",
    "{% set content = messages[0]['content'] if messages[0]['content'] is string else '' %}{{ content }}",
    "{%- for m in messages %}\n    {%- if m.tool_calls %}\n        {%- for t in m.tool_calls %}\n            {{- t.function.name ~ t.function.arguments | tojson }}\n        {%- endfor %}\n    {%- endif %}\n{%- endfor %}",
    "{% set args %}{% for k, v in {'a': 1, 'b': 'x'} | items %}{{ k }}:{{ v | tojson }}{{ ', ' if not loop.last }}{% endfor %}{% endset %}{{ args }}",
    "{{ 'x' if messages | length > 1 and messages[1].role == 'user' else 'y' }}",
    "{% set loop_messages = messages[1:] %}{% for m in loop_messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}!{% endif %}{{ m['role'] }} {% endfor %}",
    "{% if tools is defined and tools is not none and tools | length > 0 %}T{% endif %}{% if documents %}D{% endif %}",
    "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}{{ date_string }}",
    "{% macro f(a, b, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(*[1, 2]) }}{{ f(1, *(2,)) }}{{ f(*[1], **{'b': 5, 'c': 6}) }}{{ f(b=1, *[7]) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(*[1, 2]) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(**{'z': 1}) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, **{'a': 1}) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(*1) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(**{}, 1) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(*[], 1) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{% macro g(b) %}<{{ b }}>{% endmacro %}{% set all = [f, g] %}{{ all[1](*[2]) }}{{ all[0](3) }}",
    "{{ none | map('upper') | list }}{{ none | selectattr('x', 'defined') | list }}{{ 0 | select('odd') | list }}",
    "{% print 1 %}",
    "{% set x = none %}{{ x[1:] }}",
    "{% set x = {'a': 1} %}{{ x[1:] }}",
    "{% set x = [1] %}{{ x['a':] }}",
    "{% set x = [1] %}{{ x[nope:] }}",
    "{{ messages[0].nope[1:] }}",
    "{{ messages[0][1:] }}",
    "{% for x in [1, 2, 3] %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for x in [[1, 2], [3]] %}{% for y in x %}{{ y }}{{ loop.last }}{% endfor %}{% endfor %}",
    "{% if messages[0].content.split(' ') | length > 1 %}many{% endif %}",
    "{% set x = 'a' %}{% set f = x.upper %}{{ f() }}",
    "{% set x = {'f': 1} %}{{ x.f() }}",
    "{{ messages[0].content[:5] + '...' }}",
    "{{ (tools | first).function.parameters.properties | list | first }}",
    "{% for name, p in tools[0].function.parameters.properties.items() %}{{ name }}:{{ p.type }}{{ p.enum | default([]) | join('|') }};{% endfor %}",
]

CONSTRUCTS = ["{{ " + source + " }}" for source in EXPRESSIONS] + BLOCKS
