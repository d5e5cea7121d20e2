"""Templates and conversations on which the chat templates must equal Jinja2. All of them written for Quire."""

import itertools
import json

IMAGE = {"type": "image"}


def text(value):
    return {"type": "text", "text": value}


# One template with every construct of the published templates of the family, in words of its own.
FAMILY = r"""{%- set pictures = namespace(seen=0) %}
{%- set films = namespace(seen=0) %}
{#- Content is text, a list of parts, or absent. -#}
{%- macro show(content, counted, of_system=false) %}
    {%- if content is string %}
        {{- content }}
    {%- elif content is iterable and content is not mapping %}
        {%- for part in content %}
            {%- if part.type == 'image' or 'image' in part or 'image_url' in part %}
                {%- if of_system %}
                    {{- raise_exception('No pictures in a system message.') }}
                {%- endif %}
                {%- if counted %}
                    {%- set pictures.seen = pictures.seen + 1 %}
                {%- endif %}
                {%- if add_vision_id %}
                    {{- 'Picture ' ~ pictures.seen ~ ': ' }}
                {%- endif %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif part.type == 'video' or 'video' in part %}
                {%- if counted %}{% set films.seen = films.seen + 1 %}{% endif %}
                {{- '<|vision_start|><|video_pad|><|vision_end|>' }}
            {%- elif 'text' in part %}
                {{- part.text }}
            {%- else %}
                {{- raise_exception('A part of unknown kind.') }}
            {%- endif %}
        {%- endfor %}
    {%- elif content is none or content is undefined %}
        {{- '' }}
    {%- else %}
        {{- raise_exception('Content of unknown kind.') }}
    {%- endif %}
{%- endmacro %}
{%- if not messages %}{{ raise_exception('A conversation is expected.') }}{% endif %}
{%- if tools and tools is iterable and tools is not mapping %}
    {{- '<|im_start|>system\nTools:\n' }}
    {%- for tool in tools %}
        {{- '\n' }}{{ tool | tojson }}
    {%- endfor %}
    {%- if messages[0].role == 'system' %}
        {%- set first = show(messages[0].content, false, true)|trim %}
        {%- if first %}{{ '\n\n' + first }}{% endif %}
    {%- endif %}
    {{- '<|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + show(messages[0].content, false, true)|trim + '<|im_end|>\n' }}
{%- endif %}
{%- set state = namespace(open=true, last_question=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set position = (messages|length - 1) - loop.index0 %}
    {%- if state.open and message.role == "user" %}
        {%- set content = show(message.content, false)|trim %}
        {%- if not(content.startswith('<tool_response>') and content.endswith('</tool_response>')) %}
            {%- set state.open = false %}
            {%- set state.last_question = position %}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if state.open %}
    {{- raise_exception('No question of a user.') }}
{%- endif %}
{%- for message in messages %}
    {%- set content = show(message.content, true)|trim %}
    {%- if message.role == "system" %}
        {%- if not loop.first %}{{ raise_exception('The system message comes first.') }}{% endif %}
    {%- elif message.role == "user" %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- set thought = thought|trim %}
        {%- if loop.index0 > state.last_question %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + thought + '\n</think>\n\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls and message.tool_calls is iterable and message.tool_calls is not mapping %}
            {%- for call in message.tool_calls %}
                {%- if call.function is defined %}{% set call = call.function %}{% endif %}
                {{- ('\n\n' if loop.first and content|trim else '' if loop.first else '\n') + '<call ' + call.name + '>\n' }}
                {%- if call.arguments is defined %}
                    {%- for name, value in call.arguments|items %}
                        {%- set value = value | tojson | safe if value is mapping or (value is sequence and value is not string) else value | string %}
                        {{- '<' + name + '>' }}{{ value }}{{ '</>\n' }}
                    {%- endfor %}
                {%- endif %}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}{{ '<|im_start|>user' }}{% endif %}
        {{- '\n<tool_response>\n' }}{{ content }}{{ '\n</tool_response>' }}
        {%- if not loop.last and loop.nextitem.role != "tool" %}
            {{- '<|im_end|>\n' }}
        {%- elif loop.last %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- else %}
        {{- raise_exception('A role of unknown kind.') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- else %}
        {{- '<think>\n' }}
    {%- endif %}
{%- endif %}
"""

CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"type": "function", "function": {"name": "look", "arguments": {"page": 3, "area": [0, 0.5, 1e-7], "deep": {"é": None, "\"": True}, "why": "it's"}}},
    {"type": "function", "function": {"name": "stop", "arguments": {}}}]}
CONVERSATIONS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "user", "content": [IMAGE, text("Convert this page to Markdown.")]}],
    [{"role": "user", "content": [text("  before "), IMAGE, IMAGE, text(" after\n"), {"type": "image_url", "image_url": {"url": "x"}}]}],
    [{"role": "system", "content": "Be exact."}, {"role": "user", "content": [IMAGE, text("Überschrift, 表, 🙂")]}],
    [{"role": "system", "content": [text("Parts "), text("too.")]}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
     {"role": "user", "content": [text("again"), IMAGE]}],
    [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nanswer"}, {"role": "user", "content": "q2"}],
    [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nanswer"}],
    [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "reasoning_content": "\nbecause\n"}],
    [{"role": "user", "content": "q"}, CALL, {"role": "tool", "content": "one"}, {"role": "tool", "content": "two"},
     {"role": "assistant", "content": "done"}, {"role": "user", "content": "thanks"}],
    [{"role": "user", "content": "q"}, {**CALL, "content": "I look."}, {"role": "tool", "content": [text("result"), IMAGE]}],
    [{"role": "user", "content": "<tool_response>x</tool_response>"}],
    [{"role": "system", "content": [IMAGE]}, {"role": "user", "content": "x"}],
    [{"role": "user", "content": "x"}, {"role": "system", "content": "late"}],
    [{"role": "user", "content": [{"type": "video", "video": "v.mp4"}, text("what?")]}],
    [{"role": "user", "content": None}],
    [{"role": "narrator", "content": "x"}],
    [{"role": "user", "content": 5}],
    [],
]
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Looks at a page's area: <b> & \"x\"",
                                           "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}, "required": []}}}]

VALUES = {"s": "Hello, Wörld", "empty": "", "n": 7, "m": -3, "f": 2.5, "z": 0, "t": True, "none": None, "a": [3, 1, 2], "words": ["b", "A", "c"],
          "d": {"x": 1, "y": [1, {"k": "v"}], "items": 5}, "people": [{"name": "Zoë", "age": 30, "tag": "q"}, {"name": "Al", "age": 4}],
          "nested": [[1, 2], [3, [4, 5]]], "html": "<a href=\"x\">&'</a>", "lines": "one\n  two\n\nthree", "spaces": " \t\n\u00a0x\u2003y \u200b\n"}

# Each is rendered on VALUES; where Jinja2 raises an error, so must Quire.
SNIPPETS = [
    # printing and constants
    "{{ n }} {{ f }} {{ t }} {{ none }} {{ undefined_name }} {{ s }} {{ a }} {{ d }} {{ people }} {{ nested }}",
    "{{ 1 }} {{ 1.0 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 123456789012345678 }} {{ 1e16 }} {{ 1e15 }} {{ 0.1 + 0.2 }} {{ 1e22 }} {{ 12345.678e-9 }}",
    "{{ 'a' 'b' \"c\" }} {{ 'q\\'\\n\\t\\\\ \\x41 \\u00e9 \\U0001f642 \\q' }} {{ true }} {{ True }} {{ false }} {{ none is none }} {{ None }}",
    "{{ [1, 'two', 3.0, none, true] }} {{ (1, 2) }} {{ (1,) }} {{ () }} {{ {'a': 1, 'b': [2]} }} {{ [] }} {{ {} }} {{ 1, 2 }}",
    "{{ ['it\\'s', 'say \"x\"', 'both \\' \"', 'tab\\t', '\u00a0\u200bé🙂'] }}",
    # operators
    "{{ n + m }} {{ n - m }} {{ n * m }} {{ n / 2 }} {{ n // 2 }} {{ m // 2 }} {{ n % 3 }} {{ m % 5 }} {{ f % 2 }} {{ m / 3 }} {{ -n }} {{ +n }} {{ - -n }}",
    "{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }} {{ 6 / 3 }} {{ 2 * 3.5 }} {{ true + 1 }} {{ 1 - true }}",
    "{{ s ~ n ~ none ~ undefined_name ~ f ~ t }} {{ 'a' + 'b' }} {{ [1] + [2, 3] }} {{ 'ab' * 3 }} {{ 2 * 'x' }} {{ 'x' * -1 }}",
    "{{ 1 + 2 * 3 - 4 ~ 5 }} {{ (1 + 2) * 3 }} {{ 2 + 3 ~ 4 + 5 }} {{ -2 * 3 }} {{ 10 - 2 - 3 }} {{ 100 / 10 / 2 }}",
    "{{ n == 7 }} {{ n == 7.0 }} {{ n != 8 }} {{ n < 8 }} {{ n >= 7 }} {{ 1 < n < 9 }} {{ 1 < n > 9 }} {{ 'a' < 'b' }} {{ t == 1 }} {{ [1, 2] == [1, 2] }} {{ (1, 2) == [1, 2] }}",
    "{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ none == none }} {{ undefined_name == other_name }} {{ s == none }} {{ 'é' > 'z' }}",
    "{{ 3 in a }} {{ 9 in a }} {{ 9 not in a }} {{ 'ell' in s }} {{ 'x' in d }} {{ 'k' in d.y[1] }} {{ '' in s }} {{ 1 in undefined_name }}",
    "{{ t and n }} {{ z or 'alt' }} {{ not z }} {{ not t and t }} {{ z and undefined_name.x }} {{ t or undefined_name.x }} {{ not not a }} {{ none or empty or 'end' }}",
    "{{ 'yes' if t else 'no' }} {{ 'yes' if z }} {{ 'a' if z else 'b' if z else 'c' }} {{ ('x' if t else 'y') ~ 'z' }}",
    # access
    "{{ d.x }} {{ d['x'] }} {{ d.y[1].k }} {{ d['y'][1]['k'] }} {{ d.missing }} {{ d['items'] }} {{ a[0] }} {{ a[-1] }} {{ a[9] }} {{ s[0] }} {{ s[-1] }} {{ s[8] }}",
    "{{ a[1:] }} {{ a[:2] }} {{ a[::-1] }} {{ a[::2] }} {{ a[-2:] }} {{ s[1:4] }} {{ s[::-1] }} {{ s[-5:] }} {{ a[5:] }} {{ a[2:0:-1] }} {{ s[:-3] }} {{ a[:] }} {{ a[-9:9] }}",
    "{{ d.get('x') }} {{ d.get('q') }} {{ d.get('q', 'w') }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.items() | list }}",
    # methods
    "{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ 'hELLO wORLD'.capitalize() }} {{ 'straße ñandú'.upper() }} {{ 'ÀÉ'.lower() }}",
    "{{ s.startswith('He') }} {{ s.endswith(('x', 'ld')) }} {{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ s.find('W') }} {{ s.find('?') }} {{ s.count('l') }}",
    "[{{ spaces.strip() }}] [{{ spaces.lstrip() }}] [{{ spaces.rstrip() }}] [{{ '\\n\\nx\\n'.strip('\\n') }}] [{{ 'xxabxx'.lstrip('x') }}] [{{ 'abcba'.rstrip('ab') }}] [{{ 'éaé'.strip('é') }}]",
    "{{ 'a,b,,c'.split(',') }} {{ 'a,b,,c'.split(',', 1) }} {{ '  a  b c '.split() }} {{ ' a b  c '.split(none, 1) }} {{ 'a--b--c'.rsplit('--', 1) }} {{ ''.split('x') }} {{ ''.split() }}",
    "{{ lines.splitlines() }} {{ '-'.join(words) }} {{ 'unhappy'.removeprefix('un') }} {{ 'a.md'.removesuffix('.md') }} {{ '12'.isdigit() }} {{ ''.isdigit() }}",
    # filters
    "{{ spaces | trim }} {{ s | length }} {{ a | length }} {{ d | count }} {{ undefined_name | length }} {{ s | upper | lower }} {{ 'aB' | capitalize }}",
    "{{ a | join }} {{ a | join(', ') }} {{ people | join(' & ', attribute='name') }} {{ [1, none, 2.0] | join('|') }} {{ 'abc' | join('.') }}",
    "{{ undefined_name | default('x') }} {{ none | default('x') }} {{ none | default('x', true) }} {{ empty | d('e', boolean=true) }} {{ n | default(1) }} [{{ q | default }}]",
    "{{ d | tojson }} {{ people | tojson }} {{ html | tojson }} {{ none | tojson }} {{ f | tojson }} {{ 'é🙂\\u0001\\n' | tojson }} {{ [1e16, 1e-7, 0.1] | tojson }} {{ t | tojson }}",
    "{{ d | tojson(indent=2) }}\n{{ [] | tojson(indent=4) }}\n{{ {'b': {}, 'a': [[]]} | tojson(indent=1, sort_keys=true) }}\n{{ d | tojson(separators=(',', ':')) }}\n{{ 'é🙂' | tojson(ensure_ascii=true) }}",
    "{{ n | string + 'x' }} {{ f | int }} {{ '12' | int }} {{ '1.9' | int }} {{ 'x' | int }} {{ 'x' | int(-1) }} {{ '2.5' | float }} {{ 'x' | float(1.5) }} {{ ' 8 ' | int }} {{ t | int }} {{ n | float }}",
    "{{ a | first }} {{ a | last }} {{ [] | first }} {{ s | first }} {{ d | first }} {{ a | reverse | list }} {{ s | reverse }} {{ 'abc' | list }} {{ d | list }} {{ -5 | abs }} {{ m | abs }}",
    "{{ a | sort }} {{ a | sort(reverse=true) }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ people | sort(attribute='age') | map(attribute='name') | list }}",
    "{{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'A': 2} | dictsort(by='value') }} {{ {'b': 1, 'A': 2} | dictsort(true) }} {{ d | items | list }} {{ ['a', 'A', 'b', 1] | unique | list }}",
    "{{ people | map(attribute='tag', default='-') | list }} {{ words | map('upper') | join }} {{ a | map('string') | list }} {{ [' x '] | map('trim') | list }}",
    "{{ people | selectattr('tag', 'defined') | map(attribute='name') | list }} {{ people | selectattr('age', 'gt', 5) | list | length }} {{ people | rejectattr('tag') | list }} {{ a | select('odd') | list }} {{ a | reject('equalto', 1) | list }} {{ [0, 1, none, 'x'] | select | list }}",
    "{{ s | replace('l', '') }} {{ html | safe }} {{ lines | indent }} {{ lines | indent(2, true) }} {{ lines | indent(1, blank=true) }} {{ lines | indent('> ') }}",
    "{{ none | map('upper') | list }} {{ none | selectattr('x') | list }} {{ z | select | list }} {{ q | map(attribute='x') | list }}",
    # tests
    "{{ n is defined }} {{ q is defined }} {{ q is undefined }} {{ none is none }} {{ n is not none }} {{ s is string }} {{ d is mapping }} {{ a is iterable }} {{ n is iterable }} {{ q is iterable }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }}",
    "{{ n is number }} {{ t is number }} {{ f is float }} {{ n is integer }} {{ t is integer }} {{ t is boolean }} {{ n is boolean }} {{ t is true }} {{ 1 is true }} {{ t is false }} {{ z is false }} {{ none is undefined }}",
    "{{ n is odd }} {{ n is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ n is eq 7 }} {{ n is equalto(7) }} {{ n is ne 7 }} {{ n is gt 3 }} {{ n is in [7] }} {{ raise_exception is callable }} {{ s is not string }} {{ n is lt 3 }} {{ n is ge 7 }}",
    "{{ 'a' is string and n is number or false }} {{ not s is string }} {{ (s is string) ~ 'x' }} {{ d.x is defined and d.q is not defined }}",
    # statements
    "{% if n > 5 %}big{% elif n > 3 %}mid{% else %}small{% endif %}{% if z %}x{% endif %}{% if not z %}y{% endif %}",
    "{% for x in a %}{{ loop.index }}/{{ loop.length }}:{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for x in a %}{{ loop.index0 }} {{ loop.revindex }} {{ loop.revindex0 }} {{ loop.first }} {{ loop.last }} {{ loop.previtem }} {{ loop.nextitem }}; {% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in 'añb' %}[{{ c }}]{% endfor %}{% for x in q %}no{% else %}empty{% endfor %}",
    "{% for x in a if x > 1 %}{{ loop.index }}:{{ x }} {% endfor %}{% for x in [] %}{% else %}none{% endfor %}{% for x in a if x > 9 %}{% else %}none{% endfor %}",
    "{% for x in range(5) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %} {{ range(3) | list }} {{ range(1, 9, 3) | list }} {{ range(3, 0, -1) | list }}",
    "{% for x in a %}{% for y in a %}{{ loop.index }}{% if y == 1 %}{% break %}{% endif %}{% endfor %}|{{ loop.index }} {% endfor %}",
    "{% set x = 1 %}{% set x = x + 1 %}{{ x }}{% set p, q = 3, 4 %}{{ p }}{{ q }}{% set (r, t2) = [5, 6] %}{{ r }}{{ t2 }}{% set w = 1, 2 %}{{ w }}",
    "{% set x = 'out' %}{% for i in a %}{% set x = 'in' ~ i %}{{ x }}{% endfor %}{{ x }}{% if t %}{% set x = 'if' %}{% endif %}{{ x }}",
    "{% for i in a %}{% set c = (c | default(0)) + 1 %}{{ c }}{% endfor %}{{ c }}{% for i in a %}{% if loop.first %}{% set g = 1 %}{% endif %}{{ g }}{% endfor %}",
    "{% set ns = namespace(n=0, s='') %}{% for x in a %}{% set ns.n = ns.n + x %}{% set ns.s = ns.s ~ x %}{% endfor %}{{ ns.n }} {{ ns.s }} {{ ns.q is defined }}",
    "{% set block %}text {{ n }}{% if t %} more{% endif %}{% endset %}[{{ block }}] {{ block | upper }}{% set up | upper | trim %}  abc {% endset %}[{{ up }}]",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a + ns.b }}{% set ns.other = namespace(v=1) %}{% set ns.other.v = 2 %}",
    "{% macro m(a, b=2, c='x' ~ n) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c='y') }} {{ m() }} {{ m(b=5) | length }} {{ m(a='é') | upper }}",
    "{% macro outer(x) %}<{{ inner(x) }}>{% endmacro %}{% macro inner(x) %}{{ x }}{{ glob }}{% endmacro %}{% set glob = 'G' %}{{ outer(1) }}{% set glob = 'H' %}{{ outer(2) }}",
    "{% macro walk(v, depth=0) %}{% if v is sequence and v is not string %}{% for i in v %}{{ walk(i, depth + 1) }}{% endfor %}{% else %}{{ depth }}:{{ v }} {% endif %}{% endmacro %}{{ walk(nested) }}",
    "{% macro m(x) %}{% set x = x + 1 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m(x) }}{{ x }}{% for i in a %}{{ m(i) }}{% endfor %}",
    "{% set ns = namespace(k=0) %}{% macro count() %}{% set ns.k = ns.k + 1 %}{{ ns.k }}{% endmacro %}{{ count() }}{{ count() }}{{ ns.k }}",
    "{% if t %}{% macro late() %}late{% endmacro %}{% endif %}{{ late() }}{{ late is defined }}{{ late is callable }}",
    "a{% generation %}{% set inner = 1 %}b{{ n }}{% endgeneration %}c{{ inner is defined }}",
    # white space
    "a\n  {% if t %}\nb\n  {% endif %}\nc\n  {{ n }}\n  {# note #}\nd\n{# note #} e\n",
    "a  {%- if t %}  b  {%- endif %}  c  {{- n }}  {{ n -}}  d  {#- x -#}  e\n\n",
    "  {%+ if t %}\n x {%+ endif +%}\ny{% if t +%}\nz{% endif %}\n\n\n",
    "{% if t -%}\n\n  x  \n{%- endif %}\n  {%- set y = 1 -%}  \n z\u00a0{{- y }}",
    "x {% set a2 = 1 %} y\n   {% set b2 = 2 %}   z\n\t{% if t %}\n\tq{% endif %}\n",
    "\r\na\rb\n{% if t %}\r\nc{% endif %}\r\n",
    "{{ '{{' }} {{ \"}}\" }} {{ {'a': {'b': 1}}['a']['b'] }} {{ '%}' }} { {% if t %}}{% endif %} {{ {'k': {}} }}",
    "{#multi\nline\n#}\nafter{##}{#--#}{#- #} x",
    "{{ n\n  +\n  1 }}{%\n if t\n %}y{%\n endif %}\n",
    # errors
    "{{ undefined_name.x }}", "{{ undefined_name[0] }}", "{{ undefined_name() }}", "{{ undefined_name + 'x' }}", "{{ none + 1 }}", "{{ 'a' + 1 }}",
    "{{ d.missing.deeper }}", "{{ raise_exception('told so') }}", "{{ 1 / 0 }}", "{{ 'a' < 1 }}", "{% for x in 5 %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}",
    "{% set n.x = 1 %}", "{{ undefined_name | tojson }}", "{{ 1 is in 5 }}", "{% if %}x{% endif %}", "{{ }}", "{% endif %}", "{% if t %}", "{{ n", "{% for x in a %}",
    "{{ 'open }}", "{# open", "{{ a[ }}", "{{ (1 }}", "{{ 1 + }}", "{% set %}", "{% for %}", "{{ n | }}", "{{ n is }}", "{% macro %}{% endmacro %}", "{% break %}",
    "{{ n.upper() }}", "{{ s.nothing() }}", "{{ n | nothing }}", "{{ n is nothing }}", "{% nothing %}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}",
    "{{ a | first(1) }}", "{{ range(0, 5, 0) | list }}", "{{ a.append(4) }}", "{{ 5() }}", "{{ ] }}", "{{ a[::0] }}", "{{ 'x'.split('') }}", "{{ 1 2 }}", "{% if t %}{% else %}{% elif t %}{% endif %}",
]

# Jinja2 can do these; Quire says that it does not.
UNSUPPORTED = [
    "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% block b %}{% endblock %}", "{% filter upper %}x{% endfilter %}", "{% call m() %}{% endcall %}",
    "{% with %}{% endwith %}", "{% raw %}{% endraw %}", "{% autoescape true %}{% endautoescape %}", "{% for x in a recursive %}{% endfor %}", "{{ 2 ** 3 }}",
    "{{ s | wordcount }}", "{{ a | batch(2) }}", "{{ 'x'.format() }}", "{{ s is lower }}", "{{ m(*a) }}", "{{ {1: 2} }}", "{{ cycler('a') }}", "{{ '%s' % 1 }}",
    "{% for x in a %}{% macro m() %}{% endmacro %}{% endfor %}", "{{ 0x10 }}", "{{ 1_000 }}", "{% for x in a %}{{ loop.cycle('a', 'b') }}{% endfor %}",
]


def environment():
    """Jinja2 as Hugging Face sets it up for chat templates."""
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(jinja2.ext.Extension):
        """{% generation %}: a block of its own that renders as it is."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

        def _render(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def compiled(source):
    """A function from variables to text, or to None where Jinja2 refuses."""
    try:
        template = environment().from_string(source)
    except Exception:  # Jinja2 lets Python's own exceptions through
        return lambda variables: None

    def render(variables):
        try:
            return template.render(**variables)
        except Exception:
            return None

    return render


def conversation_variables():
    for messages in CONVERSATIONS:
        for thinking, prompt, tools in itertools.product([None, True, False], [True, False], [None, TOOLS]):
            variables = {"messages": messages, "add_generation_prompt": prompt, "tools": tools}
            if thinking is not None:
                variables["enable_thinking"] = thinking
            yield variables
    yield {"messages": CONVERSATIONS[2], "add_generation_prompt": True, "add_vision_id": True}


def fixture(sources):
    """Templates, sets of variables, and triples of template, variables, result."""
    templates = list(SNIPPETS) + [FAMILY] + list(sources)
    variables = [VALUES] + list(conversation_variables())
    cases = []
    for i, source in enumerate(templates):
        render = compiled(source)
        of_template = [0] if i < len(SNIPPETS) else range(1, len(variables))
        cases += [[i, j, render(variables[j])] for j in of_template]
    return {"templates": templates, "variables": variables, "cases": cases, "unsupported": UNSUPPORTED}
