//! Ways of compressing a file: tools alone, and `mzip`.

use std::path::Path;
use std::process::Command;

use crate::run;

/// How a file is compressed and given back.
#[derive(Clone, Debug)]
pub struct Way {
    /// What it is called in tables.
    pub name: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// A program, and lines for a shell that compress and give back the file `$0` as `$1`; `$2` is sapwood.
    Tool { program: &'static str, lines: [String; 2] },
    /// Arguments of `mzip`.
    Mzip(Vec<String>),
}

impl Way {
    /// A tool that works as a filter, with its arguments for compression.
    pub fn filter(name: &str, program: &'static str, arguments: &str, back: &str) -> Way {
        let lines = [arguments, back].map(|how| format!("{program} {how} -c < \"$0\" > \"$1\""));
        Way { name: name.into(), kind: Kind::Tool { program, lines } }
    }

    /// 7-Zip at a level.
    pub fn seven_zip(level: u8) -> Way {
        let lines = [
            format!("7z a -bd -bso0 -y -t7z -mx={level} -si \"$1.7z\" < \"$0\" && mv \"$1.7z\" \"$1\""),
            "7z x -bd -so -t7z \"$0\" > \"$1\"".into(),
        ];
        Way { name: format!("7z -mx={level}"), kind: Kind::Tool { program: "7z", lines } }
    }

    /// zpaq with a method.
    pub fn zpaq(method: u8) -> Way {
        let lines = [
            format!("zpaq add \"$1.zpaq\" \"$0\" -to file -m{method} && mv \"$1.zpaq\" \"$1\""),
            "ln -f \"$0\" \"$0.zpaq\" && zpaq extract \"$0.zpaq\" file -to \"$1\"; e=$?; rm -f \"$0.zpaq\"; exit $e"
                .into(),
        ];
        Way { name: format!("zpaq -m{method}"), kind: Kind::Tool { program: "zpaq", lines } }
    }

    /// A tool that reads and writes files, with its arguments both ways, and the end of its archives' names.
    pub fn files(name: &str, program: &'static str, arguments: &str, back: &str, suffix: &str) -> Way {
        let lines = [
            format!("{program} {arguments} -o \"$1{suffix}\" \"$0\" && mv \"$1{suffix}\" \"$1\""),
            format!(
                "ln -f \"$0\" \"$0{suffix}\" && {program} {back} -o \"$1\" \"$0{suffix}\"; e=$?; \
                 rm -f \"$0{suffix}\"; exit $e"
            ),
        ];
        Way { name: name.into(), kind: Kind::Tool { program, lines } }
    }

    /// 7-Zip at a level behind migration without a compressor, as the paper pipes it.
    pub fn migrated_seven_zip(level: u8) -> Way {
        let lines = [
            format!(
                "\"$2\" -q mzip --with none -c \"$0\" | 7z a -bd -bso0 -y -t7z -mx={level} -si \"$1.7z\" && mv \"$1.7z\" \"$1\""
            ),
            "7z x -bd -so -t7z \"$0\" | \"$2\" -q munzip -o \"$1\"".into(),
        ];
        Way { name: format!("mzip none + 7z -mx={level}"), kind: Kind::Tool { program: "7z", lines } }
    }

    /// rzip behind migration, with a file between them, since it seeks.
    pub fn migrated_rzip() -> Way {
        let lines = [
            "\"$2\" -q mzip --with none \"$0\" -o \"$1.mz\" && rzip -9 -o \"$1.rz\" \"$1.mz\" && mv \"$1.rz\" \"$1\"".into(),
            "ln -f \"$0\" \"$0.rz\" && rzip -d -o \"$1.mz\" \"$0.rz\" && \"$2\" -q munzip --rm \"$1.mz\" -o \"$1\"".into(),
        ];
        Way { name: "mzip none + rzip -9".into(), kind: Kind::Tool { program: "rzip", lines } }
    }

    /// `mzip` with these arguments.
    pub fn mzip(arguments: &str) -> Way {
        let kind = Kind::Mzip(arguments.split_whitespace().map(str::to_owned).collect());
        Way { name: format!("mzip {}", arguments.replace("--with ", "")), kind }
    }

    /// Of `mzip`, what follows these options: the compressor and how the file is cut.
    pub fn mzip_options(&self) -> Option<(&str, &str)> {
        let Kind::Mzip(arguments) = &self.kind else { return None };
        let of = |option: &str| {
            let at = arguments.iter().position(|argument| argument == option)?;
            Some(arguments.get(at + 1)?.as_str())
        };
        Some((of("--with").unwrap_or("zstd"), of("--chunk").unwrap_or("cdc:8k")))
    }

    /// The program that is missing for it, if one is.
    pub fn missing(&self) -> Option<&'static str> {
        match &self.kind {
            Kind::Tool { program, .. } if !run::is_installed(program) => Some(program),
            _ => None,
        }
    }

    /// Compresses a file, or gives it back.
    pub fn command(&self, sapwood: &Path, from: &Path, to: &Path, is_back: bool) -> Command {
        match &self.kind {
            Kind::Tool { lines, .. } => {
                let mut command = Command::new("sh");
                command.args(["-c", &lines[usize::from(is_back)]]).arg(from).arg(to).arg(sapwood);
                command
            }
            Kind::Mzip(arguments) => {
                let mut command = Command::new(sapwood);
                command.args(["--quiet", if is_back { "munzip" } else { "mzip" }]);
                if !is_back {
                    command.args(arguments);
                }
                command.arg(from).arg("-o").arg(to);
                command
            }
        }
    }
}
