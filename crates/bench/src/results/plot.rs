//! Figures: a gnuplot script with its data inside, and the PNG made of it.
//! Without gnuplot the script alone is left, which draws the figure later.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{bail, Result};

/// x, y, and what stands beside the point.
pub type NamedPoint = (f64, f64, String);

/// What a figure shows.
pub enum Figure {
    /// Groups of bars: a bar for each series in each group.
    Bars {
        /// Labels of the groups along the x axis.
        groups: Vec<String>,
        /// Name and one value a group; a missing value draws no bar.
        series: Vec<(String, Vec<Option<f64>>)>,
    },
    /// The same with the values in a log scale; none may be 0.
    LogBars {
        /// Labels of the groups along the x axis.
        groups: Vec<String>,
        /// Name and one value a group; a missing value draws no bar.
        series: Vec<(String, Vec<Option<f64>>)>,
    },
    /// Lines over x.
    Lines {
        /// Name and points (x, y) of each line.
        series: Vec<(String, Vec<(f64, f64)>)>,
    },
    /// Points with names, over x in a log scale; no x may be 0.
    Points {
        /// Name and points of each kind.
        series: Vec<(String, Vec<NamedPoint>)>,
    },
    /// Lines over x in a log scale, as high as their values differ; no x may be 0.
    Curves {
        /// Name and points (x, y) of each line.
        series: Vec<(String, Vec<(f64, f64)>)>,
    },
    /// Lines with both axes in a log scale; no coordinate may be 0.
    LogLines {
        /// Name and points (x, y) of each line.
        series: Vec<(String, Vec<(f64, f64)>)>,
    },
}

/// Labels of a figure.
pub struct Labels<'a> {
    /// Title above the figure.
    pub title: &'a str,
    /// Label of the x axis.
    pub x: &'a str,
    /// Label of the y axis.
    pub y: &'a str,
}

/// Writes `NAME.gp` into `out` and draws `NAME.png` from it. Says on stderr
/// when there is no gnuplot to draw with.
pub fn draw(out: &Path, name: &str, labels: &Labels<'_>, figure: &Figure) -> Result<()> {
    let script = script(name, labels, figure);
    let file = format!("{name}.gp");
    fs::write(out.join(&file), script)?;
    if !crate::run::is_installed("gnuplot") {
        eprintln!("gnuplot is not installed: {file} written, {name}.png not drawn");
        return Ok(());
    }
    let output = Command::new("gnuplot").arg(&file).current_dir(out).output()?;
    if !output.status.success() {
        bail!("gnuplot {file}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn script(name: &str, labels: &Labels<'_>, figure: &Figure) -> String {
    let mut text = format!(
        "set terminal pngcairo size 1100,650 noenhanced\nset output '{name}.png'\n\
         set title '{}'\nset xlabel '{}'\nset ylabel '{}'\n\
         set yrange [0:*]\nset grid ytics\nset key outside right top\n",
        quoted(labels.title),
        quoted(labels.x),
        quoted(labels.y)
    );
    match figure {
        Figure::Bars { groups, series } => bars(&mut text, groups, series),
        Figure::LogBars { groups, series } => {
            text.push_str("set logscale y\nset yrange [*:*]\n");
            bars(&mut text, groups, series);
        }
        Figure::Points { series } => {
            text.push_str("set logscale x\nset grid xtics ytics\nset key inside left top\nset offsets graph 0, graph 0.15, 0, 0\n");
            points(&mut text, series);
        }
        Figure::Lines { series } => lines(&mut text, series),
        Figure::Curves { series } => {
            text.push_str("set logscale x\nset yrange [*:*]\nset grid xtics ytics\n");
            lines(&mut text, series);
        }
        Figure::LogLines { series } => {
            text.push_str("set logscale xy\nset yrange [*:*]\nset grid xtics ytics\n");
            lines(&mut text, series);
        }
    }
    text
}

/// Characters of labels that fit side by side below a figure's bars.
const LABELS_CHARS_MAX: usize = 48;

fn bars(text: &mut String, groups: &[String], series: &[(String, Vec<Option<f64>>)]) {
    text.push_str("set style data histogram\nset style histogram clustered gap 1\n");
    let longest = groups.iter().map(|group| group.chars().count()).max().unwrap_or(0);
    if longest * groups.len() > LABELS_CHARS_MAX {
        text.push_str("set xtics rotate by -40\n");
    }
    text.push_str("set style fill solid 0.85 border -1\nset datafile missing '?'\n$data << END\n");
    let names: Vec<String> = series.iter().map(|(name, _)| cell(name)).collect();
    let _ = writeln!(text, "\"\" {}", names.join(" "));
    for (i, group) in groups.iter().enumerate() {
        let values: Vec<String> = series
            .iter()
            .map(|(_, values)| match values.get(i).copied().flatten() {
                Some(value) => format!("{value:.3}"),
                None => "?".into(),
            })
            .collect();
        let _ = writeln!(text, "{} {}", cell(group), values.join(" "));
    }
    text.push_str("END\n");
    let plots: Vec<String> = (0..series.len())
        .map(|i| format!("$data using {}:xtic(1) title columnheader({})", i + 2, i + 2))
        .collect();
    let _ = writeln!(text, "plot {}", plots.join(", \\\n     "));
}

fn lines(text: &mut String, series: &[(String, Vec<(f64, f64)>)]) {
    for (i, (_, points)) in series.iter().enumerate() {
        let _ = writeln!(text, "$line{i} << END");
        for (x, y) in points {
            let _ = writeln!(text, "{x} {y:.3}");
        }
        text.push_str("END\n");
    }
    let plots: Vec<String> = series
        .iter()
        .enumerate()
        .map(|(i, (name, _))| {
            format!("$line{i} using 1:2 with linespoints linewidth 2 title '{}'", quoted(name))
        })
        .collect();
    let _ = writeln!(text, "plot {}", plots.join(", \\\n     "));
}

fn points(text: &mut String, series: &[(String, Vec<NamedPoint>)]) {
    let mut plots = Vec::new();
    for (i, (kind, points)) in series.iter().enumerate() {
        let _ = writeln!(text, "$points{i} << END");
        for (x, y, name) in points {
            let _ = writeln!(text, "{x} {y:.3} {}", cell(name));
        }
        text.push_str("END\n");
        let (color, shape) = (i + 1, 7 - 2 * (i % 2));
        plots.push(format!(
            "$points{i} using 1:2 with points linecolor {color} pointtype {shape} pointsize 1.4 title '{}'",
            quoted(kind)
        ));
        plots.push(format!(
            "$points{i} using 1:2:3 with labels left offset character 1,0 font ',10' textcolor linetype {color} notitle"
        ));
    }
    let _ = writeln!(text, "plot {}", plots.join(", \\\n     "));
}

fn quoted(text: &str) -> String {
    text.replace('\'', "''")
}

fn cell(text: &str) -> String {
    format!("\"{}\"", text.replace('"', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_bars_are_marked() {
        let figure = Figure::Bars {
            groups: vec!["first".into(), "later".into()],
            series: vec![("a tool".into(), vec![Some(1.0), None])],
        };
        let labels = Labels { title: "it's", x: "", y: "MB/s" };
        let text = script("t", &labels, &figure);
        assert!(text.contains("\"later\" ?"), "{text}");
        assert!(text.contains("it''s"), "{text}");
    }

    #[test]
    fn labels_that_would_overlap_are_turned() {
        let turned = |groups: &[&str]| {
            let groups = groups.iter().map(|g| (*g).to_owned()).collect();
            let labels = Labels { title: "", x: "", y: "" };
            script("t", &labels, &Figure::Bars { groups, series: Vec::new() }).contains("xtics rotate")
        };
        assert!(!turned(&["first backup", "later versions", "restore"]));
        assert!(turned(&["clap", "hyper", "image", "libc", "nix", "openssl-sys", "rand", "regex"]));
    }

    #[test]
    fn points_have_names() {
        let series = vec![("alone".to_owned(), vec![(1.0, 2.0, "gzip \"6\"".to_owned())])];
        let text = script("t", &Labels { title: "", x: "", y: "" }, &Figure::Points { series });
        assert!(text.contains("\n1 2.000 \"gzip 6\"\n") && text.contains("title 'alone'"), "{text}");
    }

    #[test]
    fn log_scales_do_not_begin_at_zero() {
        let series = vec![("a".to_owned(), vec![(1.0, 100.0), (1000.0, 1.0)])];
        let text = script("t", &Labels { title: "", x: "", y: "" }, &Figure::LogLines { series });
        let last = text.rfind("set yrange").map(|at| &text[at..at + 16]);
        assert!(text.contains("set logscale xy") && last == Some("set yrange [*:*]"), "{text}");
    }
}
