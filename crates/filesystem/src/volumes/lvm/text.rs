//! The text of metadata: names with values, and sections of them.

/// Sections and lists within each other.
const DEPTH_MAX: usize = 16;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Number(i64),
    Text(String),
    List(Vec<Value>),
    Section(Section),
}

/// Names and values, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Section(pub Vec<(String, Value)>);

impl Section {
    /// The value of a name that stands once; of the first one otherwise.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// The number of this name; `None` for a negative one and for other values.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::Number(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    /// The text of this name.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The list of this name; empty where there is none.
    pub fn list(&self, name: &str) -> &[Value] {
        match self.get(name) {
            Some(Value::List(list)) => list,
            _ => &[],
        }
    }

    /// The sections in it, with their names.
    pub fn sections(&self) -> impl Iterator<Item = (&str, &Section)> {
        self.0.iter().filter_map(|(name, value)| match value {
            Value::Section(section) => Some((name.as_str(), section)),
            _ => None,
        })
    }

    /// The section of this name.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections().find(|(n, _)| *n == name).map(|(_, section)| section)
    }
}

type Parsed<T> = Result<T, String>;

/// Parses a whole text.
pub(super) fn parse(text: &str) -> Parsed<Section> {
    let mut parser = Parser { text, at: 0 };
    let section = parser.section(0)?;
    match parser.peek() {
        None => Ok(section),
        Some(c) => Err(parser.wrong(&format!("{c:?} where a name should be"))),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn wrong(&self, why: &str) -> String {
        let line = self.text[..self.at].matches('\n').count() + 1;
        format!("line {line}: {why}")
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// The next character behind spaces and comments.
    fn peek(&mut self) -> Option<char> {
        loop {
            let rest = self.rest().trim_start();
            self.at = self.text.len() - rest.len();
            if !rest.starts_with('#') {
                return rest.chars().next();
            }
            self.at += rest.find('\n').unwrap_or(rest.len());
        }
    }

    fn take(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        if is_there {
            self.at += wanted.len_utf8();
        }
        is_there
    }

    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '@');
        let word = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    /// Names with values, up to a closing brace or the end.
    fn section(&mut self, depth: usize) -> Parsed<Section> {
        self.check_depth(depth)?;
        let mut section = Section::default();
        while self.peek().is_some_and(|c| c != '}') {
            let name = self.word();
            if name.is_empty() {
                return Err(self.wrong("a name is missing"));
            }
            let value = if self.take('=') {
                self.value(depth)?
            } else if self.take('{') {
                let inner = self.section(depth + 1)?;
                if !self.take('}') {
                    return Err(self.wrong(&format!("the section {name} does not end")));
                }
                Value::Section(inner)
            } else {
                return Err(self.wrong(&format!("{name} has no value")));
            };
            section.0.push((name.into(), value));
        }
        Ok(section)
    }

    fn check_depth(&self, depth: usize) -> Parsed<()> {
        match depth {
            0..=DEPTH_MAX => Ok(()),
            _ => Err(self.wrong("too many sections within each other")),
        }
    }

    fn value(&mut self, depth: usize) -> Parsed<Value> {
        match self.peek() {
            Some('"') => Ok(Value::Text(self.string()?)),
            Some('[') => self.list(depth + 1),
            _ => {
                let word = self.word();
                let number = word.parse().map_err(|_| self.wrong(&format!("{word:?} is not a value")));
                number.map(Value::Number)
            }
        }
    }

    fn list(&mut self, depth: usize) -> Parsed<Value> {
        self.check_depth(depth)?;
        self.take('[');
        let mut list = Vec::new();
        while !self.take(']') {
            list.push(self.value(depth)?);
            if !self.take(',') && self.peek() != Some(']') {
                return Err(self.wrong("a list does not end"));
            }
        }
        Ok(Value::List(list))
    }

    /// In quotes; a backslash takes the character behind it as it is.
    fn string(&mut self) -> Parsed<String> {
        self.take('"');
        let mut string = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += at + 1;
                    return Ok(string);
                }
                '\\' => string.extend(chars.next().map(|(_, c)| c)),
                _ => string.push(c),
            }
        }
        Err(self.wrong("a text does not end"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sections_lists_and_comments() {
        let text = "# one\nvg { id = \"a\\\"b\\\\\"\n n=-3 list = [\"x\", 2, []]\n inner { k = 1 } }\ntime = 5 # two";
        let all = parse(text).expect("valid");
        let vg = all.section("vg").expect("a section");
        assert_eq!(vg.text("id"), Some("a\"b\\"));
        assert_eq!((vg.get("n"), vg.number("n")), (Some(&Value::Number(-3)), None));
        let list = [Value::Text("x".into()), Value::Number(2), Value::List(vec![])];
        assert_eq!(vg.list("list"), list);
        assert_eq!(vg.section("inner").and_then(|i| i.number("k")), Some(1));
        assert_eq!(all.number("time"), Some(5));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, why) in [
            ("a {\n b = 1", "line 2: the section a does not end"),
            ("a }", "line 1: a has no value"),
            ("\n}", "line 2: '}' where a name should be"),
            ("a = [1 2]", "line 1: a list does not end"),
            ("a = [1,", "line 1: \"\" is not a value"),
            ("a = \"x", "line 1: a text does not end"),
            ("a = 99999999999999999999", "not a value"),
            ("= 1", "line 1: a name is missing"),
        ] {
            let found = parse(text).expect_err(text);
            assert!(found.contains(why), "{text}: {found}");
        }
        assert!(parse(&"a{".repeat(10_000)).expect_err("deep").contains("within each other"));
        assert!(parse(&format!("a={}", "[".repeat(10_000))).expect_err("deep").contains("within each other"));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "[a-c={}\\[\\],\"\\\\# \n1é]{0,60}") {
            let _ = parse(&text);
        }
    }
}
