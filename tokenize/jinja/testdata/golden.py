#!/usr/bin/env python3
"""Writes golden.jsonl: what transformers' Jinja makes of the templates below.

    pip install jinja2==3.1.6 transformers==5.23.0
    python3 golden.py

Each line has a template, and the text that it renders with the data of DATA, or
"error": true if rendering fails. The templates are ours.
"""
import json
import os

from transformers.utils.chat_template_utils import _compile_jinja_template

HERE = os.path.dirname(os.path.abspath(__file__))

DATA = {
    "messages": [
        {"role": "system", "content": "Be 'brief'.\n"},
        {"role": "user", "content": "a</think>\n\nb <é> 中", "n": 1},
        {"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "function": {"name": "f", "arguments": {"z": 1, "a": [1.0, None, True, "\"x\"\u2028"], "deep": {"k": -2.5e-7}}}},
            {"type": "function", "function": {"name": "g", "arguments": "{\"x\": 1}"}}]},
        {"role": "tool", "content": [{"type": "text", "text": "one"}, {"type": "image"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "description": "Does <b>f</b> & 'g'.", "parameters": {
        "type": "object", "properties": {"z": {"type": "integer", "description": "a\nb"}, "a": {"type": ["array", "null"], "items": {"type": "number"}}}, "required": ["z"]}}}],
    "documents": None,
    "add_generation_prompt": True,
    "bos_token": "<s>",
    "big": 123456789012345678901234567890,
    "words": ["b", "A", "c", "a", "B"],
    "nums": [3, 1, 2.5, -4, 10],
    "text": "  Hello, World! it's\ta ΣΑΣ ß ǆ test-case\n\nline two\r\nend  ",
    "odd": {"items": 1, "keys": 2, "get": 3, "1": 4, "a b": 5, "_x": 6},
    "empty": [],
}

TEMPLATES = r'''
{{ bos_token }}|{{ pad_token }}|{{ tools is none }}|{{ documents is none }}|{{ documents }}|{{ nope is defined }}
{{ messages[0].role }}{{ messages[-1]['role'] }}{{ messages[9] is defined }}{{ messages[0].nope is defined }}{{ messages[0]['nope']|default('d') }}
{{ nope.x }}
{{ messages[0].nope.x }}
{{ none.x is defined }}{{ none['x'] is defined }}{{ none[0] is defined }}
{{ nope + 'x' }}
{{ 'x' + nope }}
{{ 'x' ~ nope ~ none ~ true ~ 1.0 ~ 1e20 ~ 1e-7 ~ [1, 'a', none] ~ {'a': (1,)} }}
{{ nope == nope2 }}{{ nope == none }}{{ not nope }}{{ nope|length }}{{ 'a' in nope }}
{{ 'a' in none }}
{{ nope in 'abc' }}
{% for x in nope %}x{% else %}none{% endfor %}
{% for x in none %}x{% endfor %}
{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 / 3 }}
{{ '%s %d %.2f %%' % ('a', 42.9, 3.14159) }}{{ '%s' % 'x' }}{{ '%s' % [1, 2] }}{{ '%s-%s' | format(1, 2) }}{{ '%f %i' % (1, true) }}{{ "%.3f" | format(2.0) }}{{ "%s" | format(none) }}
{{ '%s' % (1, 2) }}
{{ '%s %s' % (1,) }}
{{ '%d' % 'a' }}
{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.567 | round(2) }} {{ 2.1 | round(0, 'ceil') }} {{ 2.9 | round(method='floor') }} {{ 5 | round }} {{ 1234 | round(-2) }} {{ 2.675 | round(2) }} {{ 0.5 | round | int }} {{ 'a' is defined }}
{% for i in [1, 2, 3, 4] if i % 2 == 0 %}{{ i }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.index }}{{ loop.revindex }}{{ loop.revindex0 }}{% endfor %}
{% for i in 'abc' %}{{ loop.length }}{{ i }}{{ loop.nextitem }}{{ loop.revindex }}{{ loop.last }}{% endfor %}{% for m in messages %}{{ loop.length - loop.index }}{% endfor %}
{{ 'x' | round }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ 99999999999 * 99999999999 }} {{ big + 1 }} {{ big // 7 }} {{ big % 1000 }} {{ -big }} {{ big > 5 }} {{ big == big + 0.0 }}
{{ true + 1 }} {{ true == 1 }} {{ 1 == 1.0 }} {{ {1: 'a', true: 'b', 1.0: 'c'} }} {{ 'a' < 'B' }} {{ (1, 2) == [1, 2] }}
{{ 1 < 2 < 3 }} {{ 1 < 3 > 2 != 5 }} {{ 3 in nums and 'z' not in words }} {{ not 1 == 2 }}
{{ 'a' < 1 }}
{{ [1] + [2] }} {{ (1,) + (2,) }} {{ 'ab' * 3 }} {{ 2 * 'c' }} {{ 'x' * -1 }}
{{ [1] + (2,) }}
{{ 'a' + 1 }}
{{ nums[1:3] }} {{ nums[::-1] }} {{ nums[-2:] }} {{ nums[:-1] }} {{ nums[::2] }} {{ 'héllo'[1:3] }} {{ 'héllo'[::-1] }} {{ nums[5:] }} {{ nums[-9:2] }} {{ (1, 2, 3)[1:] }} {{ nums[10:0:-3] }}
{{ messages[::-1][0].role }}{% for m in messages[::-1] %}{{ loop.index0 }}{{ m.role }}{% endfor %}
{{ 'héllo'[1] }}{{ 'héllo'[-1] }}{{ 'abc'[7] is defined }}{{ nums[true] }}{{ range(3)[1] }}{{ range(5)[::2] | list }}
{{ odd.items is defined }}{{ odd['items'] }}{{ odd.keys()|list }}{{ odd.get('items') }}{{ odd.get('q') }}{{ odd.get('q', 8) }}{{ odd['1'] }}{{ odd[1] is defined }}{{ odd._x }}
{{ odd.pop is defined }}{{ odd.update }}|{{ words.append is defined }}{{ odd.__class__ }}
{{ odd.update({}) }}
{{ words.append(1) }}
{% for k, v in odd.items() %}{{ k }}={{ v }},{% endfor %}{% for k, v in odd|items %}{{ k }}{% endfor %}{% for k in odd %}{{ k }}{% endfor %}
{{ odd.items() }} {{ odd.keys() }} {{ odd.values() }} {{ odd.items()|list }} {{ odd|length }} {{ odd.items()|length }}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}
{% set a, b = 1, [2] %}{{ a }}{{ b }}{% set x = 1, %}{{ x }}{% set (c, d) = 'xy' %}{{ c }}{{ d }}
{% for i in [1, 2, 3, 4] if i % 2 == 0 %}{{ i }}{{ loop.first }}{{ loop.last }}{{ loop.index }}{% endfor %}
{% for i in 'abc' %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }}{{ loop.previtem is defined }}{{ loop.nextitem is defined }};{% endfor %}
{% for i in nums|map('string') %}{{ loop.last }}{{ i }} {% endfor %}
{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i > 2 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% set n = 1 %}{% for i in range(3) %}{% set n = n + 1 %}{{ n }}{% endfor %}{{ n }}
{% set ns = namespace(n=0, l=[]) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.n }}{{ ns.l }}{{ ns.q is defined }}{{ ns.q }}
{% set ns = namespace(a=1, b=2) %}{{ ns.a + ns.b }}
{% set ns = namespace(_a=1) %}
{% set ns = namespace() %}{% set ns._a = 1 %}
{% set d = {} %}{% set d.a = 1 %}
{% if false %}{% elif 0 %}{% elif 'x' %}y{% else %}z{% endif %}{% if [] or {} or none or '' or 0.0 %}{% else %}n{% endif %}
{{ 'a' if true }}{{ 'a' if false }}|{{ 'a' if false else 'b' if false else 'c' }}|{{ ('x' if nope else 'y') ~ 'z' }}
{{ 1 if 2 else 3 if 4 else 5 }}{{ (1 and 0) or 'q' }}{{ 0 or none }}{{ '' and 1 }}
{% macro m(a, b=2, c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=5) }}{{ m(b=7, a=8) }}{{ m() }}{{ m(1) | upper }}{{ m.name }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(q=1) }}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}
{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}{% set x = 2 %}{{ f() }}{% for x in [3] %}{{ f() }}{% endfor %}
{% macro t(x) %}  {{- x -}}  {% endmacro %}{{ t(' a ') }}|{{ t('b')|trim }}
{% macro type(p) %}{%- if p.type is string -%}{{ p.type }}{%- elif p.type is iterable -%}{{ p.type | join(' or ') }}{%- endif -%}{% endmacro %}{% for k, v in tools[0].function.parameters.properties.items() %}{{ k }}: {{ type(v) }}{{ ", " if not loop.last }}{% endfor %}
{% set x %}a{{ 1 }}{% set y = 3 %}{% endset %}{{ x }}{{ y is defined }}{{ x|length }}
{% generation %}a{{ bos_token }}{% endgeneration %}b{%- generation -%} c {%- endgeneration %}
{% for i in [1] %}{{ loop([2]) }}{% endfor %}
x\n{% if true %}\n  y\n{% endif %}\nz\n
  {%- for m in messages -%}\n [{{ m.role }}] \n{%- endfor %}
a\n  {% if true %}\nb\n  {%+ if true %}\nc{%+ endif +%}\nd {% endif %} \ne
a\n  {{ 1 }}\n{{- 2 }}\n{{ 3 -}}\n b\n{{+ 4 }}\n
a\n  {# c #}\n b {# d #}\nc {#- e -#}\n d {#+ f +#}\ne
{# c #}\n\n\n{{ 1 }}\n\n
   {% if true %}x{% endif %}   {% if true %}y\n   {% endif %}z
{% set x = 1 -%}\n\n   {% set y = 2 %}   \n  a
{{ "a\nb\tc\\d\'e\x41\u00e9\q" }}{{ 'it''s' }}{{ "x" 'y' }}{{ '\
' }}
{{ 1.5e3 }} {{ 1e3 }} {{ 00 }}
{{ messages.0.role }}{{ nums.1 }}{{ [[1, 2]].0.1 }}
{{ {'a': 1,}.a }}{{ [1, 2,] }}{{ (1,) }}{{ () }}{{ {} }}{{ {'a': {'b': [{}]}} }}{{ {'{%': '}}'} }}
{{ text.strip() }}|{{ text.lstrip() }}|{{ text.rstrip() }}|{{ text.strip(' eHdn') }}|{{ text|trim }}|{{ 'xxaxx'.strip('x') }}|{{ 'xxa'|trim('x') }}
{{ text.split() }} {{ text.split(' ') }} {{ text.split(None, 2) }} {{ text.split(' ', 1) }} {{ 'a,b,c'.split(',', maxsplit=1) }} {{ ''.split() }} {{ ''.split(',') }}
{{ 'a'.split('') }}
{{ text.upper() }}{{ text.lower() }}{{ text.title() }}{{ text.capitalize() }}{{ text|title }}{{ text|upper|lower|capitalize }}{{ 'ΑΣ'.lower() }}
{{ 'abcabc'.replace('b', 'X') }}{{ 'abcabc'.replace('b', 'X', 1) }}{{ 'abc'.replace('', '-') }}{{ 'abcabc'|replace('a', 1) }}{{ 'abc'|replace('b', '', 0) }}
{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'bc')) }}
{{ 'abc'.index('x') }}
{{ messages | tojson }}
{{ tools | tojson(indent=4) }}
{{ tools[0] | tojson(indent=2) | safe }}{{ tools | tojson(separators=(',', ':')) }}{{ 'é\u2028😀\x7f\x01' | tojson }}{{ 'é\u2028😀\x7f\x01' | tojson(ensure_ascii=true) }}
{{ [1.0, 1e100, 1e-10, 100000000000000000.0, 0.1, -0.0, big, true, none, (1, 2), {1: 2, none: 3, true: 4, 1.5: 5}] | tojson }}{{ [] | tojson(indent=2) }}{{ {} | tojson(indent=2) }}{{ [[], {}] | tojson(indent=2) }}{{ [1, [2]] | tojson(indent='--') }}{{ [1] | tojson(indent=0) }}
{{ messages | map(attribute='content.0.text') | list }}
{{ nope | tojson }}
{{ {'a': nope} | tojson }}
{{ words | sort }}{{ words | sort(reverse=true) }}{{ words | sort(case_sensitive=true) }}{{ nums | sort }}{{ messages | sort(attribute='role') | map(attribute='role') | list }}{{ words | unique | list }}{{ [] | first }}
{{ ['a', 1] | sort }}
{{ words | join }}{{ words | join(', ') }}{{ nums | join(1) }}{{ messages | join('|', attribute='role') }}{{ none | default('x') }}{{ none | default('x', true) }}{{ '' | d('y', boolean=true) }}{{ nope | default }}
{{ messages[3:] | map(attribute='content.0.text') | list }}{{ words | map('upper') | join }}{{ words | map('replace', 'a', 'z') | list }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | selectattr('tool_calls') | list | length }}{{ messages | selectattr('tool_calls', 'defined') | map(attribute='role') | list }}{{ messages | rejectattr('role', 'in', ['user', 'tool']) | map(attribute='role') | join(',') }}{{ nums | select('>', 2) | list }}{{ nums | reject('odd') | list }}{{ [0, 1, '', 'a'] | select | list }}{{ nums | select('number') | first }}
{% if messages | selectattr('role', 'equalto', 'nobody') %}always{% endif %}{% if messages | selectattr('role', 'equalto', 'nobody') | list %}never{% endif %}{{ (messages | selectattr('role', 'equalto', 'user') | first).content }}
{{ (messages | map(attribute='role'))[0] is defined }}{% set g = words | map('upper') %}{{ g | list }}{{ g | list }}
{{ messages | map(attribute='role') | length }}
{{ messages | map(attribute='role') | last }}
{{ messages | last | length }}{{ words | first }}{{ words | last }}{{ 'abc' | first }}{{ 'abc' | last }}
{{ {'b': 1, 'A': 2} | dictsort }}{{ {'b': 1, 'A': 2} | dictsort(true) }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb\n\nc' | indent(2, true) }}|{{ 'a\nb\n\nc' | indent(1, blank=true) }}|{{ 'a\nb' | indent('> ', first=true) }}|{{ '' | indent }}|{{ 'a\n' | indent }}
{{ '42' | int }}{{ '4.7' | int }}{{ 'x' | int }}{{ 'x' | int(7) }}{{ 4.9 | int }}{{ -4.9 | int }}{{ true | int }}{{ none | int }}{{ ' 12 ' | int }}{{ '1_0' | int }}{{ '_1' | int(5) }}{{ '-7' | int }}{{ '1e3' | int }}
{{ 5 | string ~ 'a' }}{{ none | string }}{{ [1] | string | length }}
{{ ('<' | safe) + '<' }}{{ '<' | safe ~ '<' }}{{ ('<' | safe) | replace('<', '>') }}
{{ 1 is integer }}{{ true is integer }}{{ true is number }}{{ 1.0 is float }}{{ 'a' is string }}{{ odd is mapping }}{{ words is sequence }}{{ 'a' is sequence }}{{ odd is sequence }}{{ 'a' is iterable }}{{ 1 is iterable }}{{ nope is iterable }}{{ none is none }}{{ true is boolean }}{{ true is true }}{{ 1 is true }}{{ false is false }}{{ odd.items() is sequence }}{{ range(3) is sequence }}
{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}{{ 1 is in [1] }}{{ 1 is not in [1] }}{{ 'a' is eq 'a' }}{{ 1 is lt 2 }}{{ 'x' is not defined }}{{ nope is undefined }}{{ 3 is gt(2) and 1 is ne 2 }}
{{ messages[0].content is string and messages is not string }}{{ messages[3].content is not string and messages[3].content is iterable and messages[3].content is not mapping }}
{{ range(3) }}{{ range(1, 10, 4) | list }}{{ range(5, 0, -2) | list }}{{ range(0) | length }}{{ 3 in range(5) }}{{ range(2, 2) | list }}
{{ range(1, 2, 0) }}
{{ range(100001) | length }}
{{ dict(a=1, b='2') }}{{ dict(q=1, r=2).q }}{% macro three(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ three(*[1, 2], c=3) }}{{ three(*(1, 2, 3)) }}
{{ raise_exception('roles must alternate') }}
{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no ' + m.role) }}{% endif %}{% endfor %}
{{ strftime_now('%%') }}
{{ words | nosuch }}
{{ 1 is nosuch }}
{{ lipsum is defined }}
{% do words %}
{% include 'x' %}
{% if %}
{% for x in %}{% endfor %}
{{ }}
{{ (1 }}
{% if true %}
{% endif %}
{% for x in [1] %}{% else %}{% else %}{% endfor %}
{{ 1 2 }}
{{ 'a }}
{% set = 1 %}
{% set true = 1 %}
{% macro f(a=1, b) %}{% endmacro %}
{{ f(a=1, 2) }}
{{ 1 is string is string }}
{{ nope() }}
{{ none() }}
{{ words() }}
{{ words['a' }}
{{ *words }}
{{ not }}
{% break %}
{% macro m(role, content, name='') -%}{{ '<' ~ role ~ (':' ~ name if name) ~ '>' }}{{ content }}{%- endmacro %}{% for m_ in messages %}{{ m(m_.role, m_.content if m_.content is string else m_.content | map(attribute='text') | select('defined') | join) }}{% endfor %}
{%- set ns = namespace(multi=true, last=messages|length - 1) %}{%- for m in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}{%- if ns.multi and m.role == "user" and m.content is string and not (m.content.startswith('<t>') and m.content.endswith('</t>')) %}{%- set ns.multi = false %}{%- set ns.last = index %}{%- endif %}{%- endfor %}{{ ns.last }}
{%- for tc in messages[2].tool_calls %}{%- if tc.function %}{%- set tc = tc.function %}{%- endif %}{{- '<call>{"name": "' }}{{- tc.name }}{{- '", "arguments": ' }}{%- if tc.arguments is string %}{{- tc.arguments }}{%- else %}{{- tc.arguments | tojson }}{%- endif %}{{- '}</call>\n' }}{%- endfor %}
{% for name, value in messages[2].tool_calls[0].function.arguments|items %}{{ name }}={{ value | tojson | safe if value is mapping or (value is sequence and value is not string) else value | string }};{% endfor %}
{{ messages[1].content.split('</think>')[-1].lstrip('\n') }}|{{ messages[1].content.split('</think>')[0].rstrip('\n').split('<think>')[-1] }}
{% if 'n' in messages[1] and messages[1].n is defined and messages[1]['n'] == 1 and not messages[0].n %}ok{% endif %}
{% set system = messages[0].content if messages[0].role == 'system' else '' %}{% set rest = messages[1:] if system else messages %}{{ system|trim }}{{ rest|length }}{% if '/no_think' in system %}x{% endif %}
{% if not date_string is defined %}{% if strftime_now is defined %}{% set date_string = 'now' %}{% else %}{% set date_string = '26 Jul 2024' %}{% endif %}{% endif %}{{ date_string }}
{{ "builtin: " + ([1, 2] | reject('equalto', 2) | join(", ")) + "\n" }}{{ ('a', 'b')|list|tojson }}{{ messages|length > 2 and messages[0]['role'] == 'system' }}
{{- tools[0].function.parameters.properties.keys()|list|join(', ') -}} {{ tools[0]['function']['parameters']['required']|join }} {{ tools[0].function.parameters | length }}
{{ (messages | selectattr('role', 'in', ['user', 'tool']) | list)[-1].role }}{{ messages|map(attribute='role')|unique|list }}{{ messages|map('length')|list }}
{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}A{% else %}B{% endif %}{{ loop.previtem.role if loop.previtem else '-' }}{{ loop.nextitem.role if loop.nextitem is defined }}{% endfor %}
{{ text | length }}{{ 'é中😀' | length }}{{ 'é中😀'[::-1] }}{{ 'é中😀'[1:] }}{{ 'ß'.upper() }}{{ 'ŉ'.upper() }}{{ 'İ'.lower() | length }}
{{ 1.0 }}{{ 1e16 }}{{ 123456789.123 }}{{ 1e15 }}{{ 0.0001 }}{{ 0.00001 }}{{ 3.0 | int }}{{ 5 // 2.0 }}
{{ [nope, none, true, 'a\'b', "a\"b'", 'é\n\t\\\x00\u200b'] }}{{ {'a': nope} }}
{{ loop is defined }}{% for x in [1] %}{{ loop is defined }}{% for y in [2] %}{{ loop.index }}{% endfor %}{% endfor %}
{{ 'a' 'b' | upper }}{{ not true | string }}{{ 1 + 2 | string | length }}{{ 'a' ~ 1 + 2 }}{{ 2 * 3 ~ 4 }}{{ 1 ~ 2 == '12' }}{{ -nums[0] }}{{ - -1 }}{{ +1 }}
{{ words | select('equalto', 'a') | list }}{{ words | map('first') | list }}{{ [[3, 1], [2]] | map('sort') | list }}
{% set t = "x" %}{% for i in [1] %}{% if i %}{% set t = "y" %}{% endif %}{{ t }}{% endfor %}{{ t }}{% if true %}{% set t = "z" %}{% endif %}{{ t }}
{{ messages is iterable and messages is not mapping }}{{ messages[0].keys() | list }}{{ 'role' in messages[0] }}{{ 'role' in messages[0].keys() }}{{ ('role', 'tool') in messages[3].items() }}{{ messages[0] == {'content': "Be 'brief'.\n", 'role': 'system'} }}
{{ nums|min }} {{ nums|max }} {{ words|min }}{{ words|max }}{{ words|min(true) }}{{ messages|max(attribute='role')|length }}{{ []|min is defined }}{{ 'bca'|max }}{{ {'b': 1, 'a': 2}|min }}
{{ nums|sum }} {{ [1, 2]|sum(start=10) }} {{ messages[:2]|sum(attribute='role|length', start=0) is defined if false }} {{ []|sum }} {{ [[1], [2]]|sum(start=[]) }} {{ [{'n': 1}, {'n': 2.5}]|sum('n') }}
{{ ['a']|sum }}
{{ -3|abs }} {{ (-2.5)|abs }} {{ true|abs }} {{ (0 - big)|abs }}
{{ 'a'|abs }}
{{ '3.5'|float }} {{ 'x'|float }} {{ 'x'|float(1.5) }} {{ 3|float }} {{ ' 1e3 '|float }} {{ none|float }} {{ true|float }} {{ 'inf'|float }}
{{ words|reverse|list }} {{ 'abc'|reverse }} {{ range(3)|reverse|join(',') }} {{ odd|reverse|list }} {{ (1, 2)|reverse|list }}
{% for role, items in messages|groupby('role') %}{{ role }}={{ items|length }};{% endfor %}{% for k, l in [{'a': 'x', 'n': 1}, {'a': 'X', 'n': 2}, {'n': 3}]|groupby('a', default='') %}{{ k }}:{{ l|map(attribute='n')|list }};{% endfor %}
{% for k, l in [{'a': 'x', 'n': 1}, {'a': 'X', 'n': 2}]|groupby('a', case_sensitive=true) %}{{ k }}:{{ l|length }};{% endfor %}
{{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 0)|list }} {{ []|batch(3)|list }} {{ words|batch(3, 'x')|map('join')|list }}
{{ 'it is a-b, é_1 2'|wordcount }}
{% with %}{{ nums[0] }}{% endwith %}{% with a = 1, b = nums|length %}{{ a }}{{ b }}{% set c = 3 %}{{ c }}{% endwith %}{{ a is defined }}{{ c is defined }}{% set x = 1 %}{% with x = 2, y = x %}{{ x }}{{ y }}{% endwith %}{{ x }}
{% filter upper %}a{{ bos_token }}{% set q = 1 %}{% endfilter %}{{ q is defined }}{% filter replace('a', 'b')|indent(2, true) %}aXa{% endfilter %}{% set t | trim | upper %}  q{{ 1 }} {% endset %}[{{ t }}]
{{ "{} {}".format(1, 'a') }} {{ "{1}{0}{1}".format('a', 'b') }} {{ "{x}-{y!r}".format(x=1, y='b') }} {{ "{{}}{}".format(none) }} {{ "{!s}{!r}".format('a', 'a') }} {{ "é{}".format([1, 'a']) }} {{ "{}".format(true) }}
{{ "{:.2f}|{:d}|{:s}|{:f}|{!r}".format(3.14159, 7, "a", 1, "b") }}
{{ "{}".format() }}
{{ "{x}".format(1) }}
{{ 'a{'.format(1) }}
{{ 'héllo'.find('l') }}{{ 'héllo'.find('z') }}{{ 'héllo'.rfind('l') }}{{ 'héllo'.find('') }}{{ 'héllo'.rfind('') }}{{ 'héllo'.index('o') }}{{ 'héllo'.rindex('l') }}{{ 'héllo'.count('l') }}{{ 'héllo'.count('') }}{{ 'aaaa'.count('aa') }}
{{ 'abc'.rindex('x') }}
{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a,b,c'.rsplit(',') }}{{ 'a,b,c'.rsplit(',', 9) }}{{ ' a  b c '.rsplit() }}{{ ' a  b c '.rsplit(None, 1) }}{{ ' a  b c '.rsplit(maxsplit=2) }}{{ ''.rsplit(',', 1) }}{{ '  '.rsplit(None, 1) }}{{ 'a,b'.rsplit(',', 0) }}{{ ' a '.rsplit(None, 0) }}{{ 'a--b--c'.rsplit('--', 1) }}
{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'abc'.partition('=') }}{{ 'abc'.rpartition('=') }}
{{ 'abc'.partition('') }}
{{ 'unhappy'.removeprefix('un') }}{{ 'unhappy'.removeprefix('x') }}{{ 'a.py'.removesuffix('.py') }}{{ 'a.py'.removesuffix('') }}
{{ text.splitlines() }}{{ ''.splitlines() }}{{ 'a\n\nb\n'.splitlines() }}
{{ ', '.join(words) }}{{ ''.join([]) }}{{ '-'.join('ab') }}{{ odd.copy() == odd }}
{{ ','.join(nums) }}
{{ '12'.isdigit() }}{{ '1.2'.isdigit() }}{{ ''.isdigit() }}{{ '²'.isdigit() }}{{ '²'.isdecimal() }}{{ '½'.isnumeric() }}{{ 'aé'.isalpha() }}{{ 'a1'.isalpha() }}{{ 'a1'.isalnum() }}{{ 'a 1'.isalnum() }}{{ ' \n\t'.isspace() }}{{ ''.isspace() }}{{ 'ab1'.islower() }}{{ 'Ab'.islower() }}{{ '1'.islower() }}{{ 'AB1'.isupper() }}{{ 'é'.isascii() }}{{ ''.isascii() }}
{{ words.index('c') }}{{ words.count('a') }}{{ (1, 2, 1).count(1) }}{{ (1, 2).index(2) }}
{{ words.index('zz') }}
{% for i in range(5) %}{{ loop.cycle('a', 'b') }}{% if loop.changed(i // 2) %}*{% endif %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}
{{ 'a' is lower }}{{ 'A' is upper }}{{ 'aB' is lower }}{{ none is sameas none }}{{ true is sameas(true) }}{{ 1 is sameas true }}{{ range is callable }}{{ 1 is callable }}{{ 'upper' is filter }}{{ 'nosuch' is filter }}{{ 'odd' is test }}{{ ('<'|safe) is escaped }}{{ '<' is escaped }}
{% macro m() %}{{ m is callable }}{% endmacro %}{{ m() }}{{ 'abc'.startswith(('x', 'a')) }}{{ words|map('lower')|unique|sort|join }}
{{ messages|map(attribute='role')|max }}{{ (nums|min, nums|max)|sum }}{{ ([1, 2]|batch(1)|list)[0] }}{{ 3.7|int|float }}{{ [3, 1]|min }}
'''


def main():
    templates = TEMPLATES.strip("\n").replace("\\\n", "\0").split("\n")
    with open(os.path.join(HERE, "golden.jsonl"), "w", encoding="utf-8") as out:
        out.write(json.dumps(DATA) + "\n")
        for t in templates:
            t = t.replace("\0", "\\\n")
            if not t.startswith(("{{ \"a\\n", "{{ '", "{{ [", "{{ text", "{{ messages[1].c", "{{ \"", "{%- for tc", "{{ words")):
                t = t.replace("\\n", "\n")
            try:
                got = {"text": _compile_jinja_template(t).render(**json.loads(json.dumps(DATA)))}
            except Exception as e:
                got = {"error": f"{type(e).__name__}: {e}"}
            out.write(json.dumps(dict(template=t, **got)) + "\n")


main()
