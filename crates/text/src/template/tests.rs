//! Templates by input and output.

use super::*;

const SMOLLM: &str = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + \
message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}\
{{ '<|im_start|>assistant\n' }}{% endif %}";

fn render(source: &str, messages: &[(&str, &str)], generation_prompt: bool) -> Result<String, TextError> {
    let messages: Vec<Message> =
        messages.iter().map(|(role, content)| Message::new(*role, *content)).collect();
    with_template(source, "<s>", "</s>", |template| {
        template.render(&messages, generation_prompt, 951_782_400)
    })
}

fn check(source: &str, expected: &str) {
    let messages = [("user", "Hi & <bye>"), ("assistant", " \"é\"\n")];
    assert_eq!(render(source, &messages, false).unwrap(), expected, "{source}");
}

#[test]
fn a_whole_template() {
    let text = render(SMOLLM, &[("user", "Hi")], true).unwrap();
    let expected =
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(text, expected);
    let text = render(SMOLLM, &[("system", "S"), ("user", "Hi")], false).unwrap();
    assert_eq!(text, "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
    assert_eq!(render(SMOLLM, &[], false).unwrap(), "");
}

#[test]
fn what_templates_expect() {
    check("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>Hi & <bye></s>");
    check("{% if tools is not none %}tools{% endif %}{% if not documents %}none{% endif %}", "none");
    check("{{ messages[1]['content'].strip().upper() }}|{{ messages[1].content | trim }}", "\"É\"|\"é\"");
    check("{{ messages[0].get('name', 'nobody') }}", "nobody");
    check("{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{{ m.role }}{% endfor %}", "user");
    check(
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
        "2",
    );
    check("{{ strftime_now('%d %B %Y') }}", "29 February 2000");
    check("{{ messages[::-1][0].role }}", "assistant");
}

#[test]
fn blocks_leave_no_white_space() {
    check("  {% if true %}\nx\n  {% endif %}\n{{ 'y' }}\n", "x\ny");
    check("a {%- if true -%} b {%- endif %} c", "ab c");
}

#[test]
fn json_as_python_writes_it() {
    check("{{ messages[1].content | tojson }}", "\" \\\"é\\\"\\n\"");
    check("{{ [1, 2.5, none, true, '<'] | tojson }}", "[1, 2.5, null, true, \"<\"]");
    check("{{ {'a': [], 'b': {'c': 1}} | tojson }}", "{\"a\": [], \"b\": {\"c\": 1}}");
    check("{{ {'a': [1]} | tojson(indent=2) }}", "{\n  \"a\": [\n    1\n  ]\n}");
    check("{{ 'é😀' | tojson(ensure_ascii=true) }}", "\"\\u00e9\\ud83d\\ude00\"");
}

/// `expected` is a part of the message.
fn check_refused(source: &str, is_kind: fn(&TextError) -> bool, expected: &str) {
    let error = render(source, &[("user", "x")], false).unwrap_err();
    assert!(is_kind(&error) && error.to_string().contains(expected), "{:.80}: {error:?} {error}", source);
}

#[test]
fn broken_templates() {
    let broken = |error: &TextError| matches!(error, TextError::Template { .. });
    check_refused("{% if %}", broken, "line 1");
    check_refused("\n\n{{ messages[0].content.nothing() }}", broken, "line 3");
    check_refused("{{ nobody.name }}", broken, "undefined");
    check_refused("{% include 'other' %}", broken, "template");
}

#[test]
fn templates_that_refuse() {
    let refused = |error: &TextError| matches!(error, TextError::TemplateRefused { .. });
    check_refused("{{ raise_exception('roles must alternate') }}", refused, "roles must alternate");
    check_refused("{% macro m() %}{{ raise_exception('no') }}{% endmacro %}{{ m() }}", refused, "no");
}

#[test]
fn templates_without_end() {
    let fuel = |error: &TextError| matches!(error, TextError::TemplateFuel { .. });
    let long = "{% for i in range(90000) %}{% for j in range(90000) %}x{% endfor %}{% endfor %}";
    check_refused(long, fuel, "units of work");
    let double =
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}";
    check_refused(double, fuel, "units of work");
    let add =
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}";
    check_refused(add, fuel, "units of work");
    check_refused("{{ 'x' * 99999999 }}", fuel, "units of work");
    let size = |error: &TextError| matches!(error, TextError::TemplateSize { .. });
    check_refused(&"x".repeat(LIMIT_BYTES + 1), size, "65537");
}

/// Each is stopped, soon, and without much memory: a test that took gigabytes or minutes would not pass unnoticed.
#[test]
fn work_inside_a_filter_or_method_is_charged() {
    let long = "x".repeat(400_000); // a third of the most fuel that there is
    let ends = |source: &str| {
        let begun = std::time::Instant::now();
        let ended = render(source, &[("user", &long)], false);
        let stopped = matches!(ended, Err(TextError::TemplateFuel { .. } | TextError::Template { .. }));
        assert!(stopped || ended.is_ok_and(|text| text.len() < 10_000), "{source}");
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{source}");
    };
    let grow = |start: &str, step: &str| {
        ends(&format!(
            "{{% set ns = namespace(s={start}) %}}{{% for i in range(90000) %}}{{% set ns.s = {step} %}}{{% endfor %}}"
        ));
    };
    grow("'\"'", "ns.s | tojson");
    grow("'é'", "ns.s | tojson(ensure_ascii=true)");
    grow("'x'", "ns.s.replace('x', 'xx')");
    grow("'x'", "ns.s | replace('x', 'xx')");
    grow("'x'", "ns.s.join([ns.s, ns.s, ns.s])");
    grow("'x'", "[ns.s, ns.s] | join(ns.s)");
    grow("'x'", "ns.s | urlencode ~ '%'");
    grow("'<'", "ns.s | escape | string");
    grow("'x\n'", "ns.s | indent(1000) ~ '\n'");
    grow("'x'", "'%s%s' | format(ns.s, ns.s)");
    grow("'x'", "'{0}{0}'.format(ns.s)");
    grow("[1]", "ns.s + ns.s");
    grow("[1]", "[1] + ns.s");
    grow("[1]", "[ns.s[0] + ns.s[0]]");
    grow("[[1]]", "[ns.s[0] + ns.s[0]]");
    grow("[1]", "ns.s * 2");
    grow("[]", "ns.s + [0] * 1000000000000000");
    ends(&format!("{{{{ {} }}}}", "[] + [0] * 1000000000000000".to_owned() + &" + []".repeat(40)));
    grow("[1]", "[ns.s, ns.s] | tojson | list");
    grow("'x'", "strftime_now(ns.s ~ ns.s)");
    grow("'%Y'", "strftime_now(ns.s ~ ns.s) ~ '%Y%Y'");
    ends("{{ 'x' | indent(99999999999) }}");
    ends("{{ ('x\n' * 1000000) | indent(1000000) }}");
    ends("{{ messages[0].content.replace('', messages[0].content) }}");
    ends("{{ messages[0].content | replace('', messages[0].content) }}");
    ends("{{ messages[0].content.join(messages[0].content) }}");
    ends("{{ messages[0].content | list | join(messages[0].content) }}");
    ends("{{ range(10000000000) | list }}");
    ends("{{ range(99999) | batch(99999999999, 'x') | list }}");
    ends("{{ [1] | slice(99999999999) | list }}");
    ends("{{ 10 ** 100000000 }}");
    ends("{{ '%0999999999d' | format(1) }}");
    ends("{{ '{:>999999999}'.format('x') }}");
    ends("{{ messages[0].content | sort | unique | list | length }}");
    ends("{{ messages[0].content.split('x') | length }}");
    ends("{% for i in range(100000) %}{{ messages[0].content.find('xy') }}{% endfor %}");
    ends("{% for i in range(100000) %}{{ messages[0].content.count('xxy') }}{% endfor %}");
    ends("{% for i in range(100000) %}{{ messages[0].content | length }}{% endfor %}");
    ends("{% for i in range(100000) %}{{ 'y' in messages[0].content }}{% endfor %}");
    ends("{% for i in range(100000) %}{{ messages[0].content.strip('x') }}{% endfor %}");
    ends("{% for i in range(100000) %}{% if messages[0].content | upper == 1 %}{% endif %}{% endfor %}");
    ends("{% for i in range(100000) %}{% if messages[0].content | tojson == 1 %}{% endif %}{% endfor %}");
    let deep = "{% set ns = namespace(x=1) %}{% for i in range(20000) %}{% set ns.x = [ns.x] %}{% endfor %}";
    ends(&format!("{deep}{{{{ ns.x | tojson(indent=16) }}}}"));
    ends(&format!("{deep}{{% for i in range(1000) %}}{{{{ ns.x }}}}{{% endfor %}}"));
    ends(&format!("{deep}{{% for i in range(1000) %}}{{{{ ns.x == [ns.x] }}}}{{% endfor %}}"));
}

/// Text of the largest template: `before`, as many `unit`s as fit, `after`.
fn nested(before: &str, unit: &str, after: &str) -> String {
    let count = (LIMIT_BYTES - before.len() - after.len()) / unit.len();
    [before, &unit.repeat(count), after].concat()
}

#[test]
fn the_deepest_nesting_does_not_overflow() {
    let write = |source: &str| render(source, &[("user", "x")], false);
    assert_eq!(write(&nested("{{ ", "--", "1 }}")).unwrap(), "1");
    assert_eq!(write(&nested("{{ 1", "+0", " }}")).unwrap(), "1");
    assert_eq!(write(&nested("{{ 1", "|abs", " }}")).unwrap(), "1");
    assert_eq!(write(&nested("{{ 1", " if 1 else 0", " }}")).unwrap(), "1");
    assert_eq!(write(&nested("{% if 0 %}", "{%elif 0%}", "{% endif %}")).unwrap(), "");
    assert!(matches!(write(&nested("{{ 1", ".a", " }}")), Err(TextError::Template { .. })));
    let broken = |error: &TextError| matches!(error, TextError::Template { .. });
    check_refused(&nested("{{ ", "(", ""), broken, "recursion");
    check_refused(&nested("{{ ", "-(a*", ""), broken, "recursion");
    check_refused(&nested("{{ ", "a is b(", ""), broken, "recursion");
    check_refused(&nested("{{ n", "+n", " }}"), broken, "sums");
    check_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", broken, "recursion");
}

#[test]
fn the_deepest_value_does_not_overflow() {
    // The most fuel that there is, by a long conversation.
    let long = "x".repeat(2_000_000);
    for used in ["{{ ns.x == [[ns.x]] }}", "{{ ns.x }}", "{{ ns.x | tojson }}", "{{ {ns.x: 1} }}"] {
        let grow =
            "{% set ns = namespace(x=1) %}{% for i in range(20000) %}{% set ns.x = [ns.x] %}{% endfor %}";
        assert!(render(&format!("{grow}{used}"), &[("user", &long)], false).is_ok(), "{used}");
    }
    let endless = "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% for j in range(99999) %}\
                   {% set ns.x = {'a': ns.x} %}{% endfor %}{% endfor %}";
    let error = render(endless, &[("user", &long)], false).unwrap_err();
    assert!(matches!(error, TextError::TemplateFuel { fuel: FUEL_LIMIT }), "{error:?}");
}

#[test]
fn long_conversations_have_fuel() {
    let long = "word ".repeat(200_000);
    let turns: Vec<_> = (0..400).map(|turn| (["user", "assistant"][turn % 2], "short")).collect();
    assert_eq!(render(SMOLLM, &[("user", &long)], true).unwrap().matches("word").count(), 200_000);
    assert_eq!(render(SMOLLM, &turns, true).unwrap().matches("short").count(), 400);
}
