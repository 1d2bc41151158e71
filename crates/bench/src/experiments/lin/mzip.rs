//! Compressors alone and behind migration, in the same run: `lin-2.4` (Lin 2015, figures 2.4 and 2.5), `lin-2.7` (deltas),
//! `lin-2.8` (length of chunks), `lin-2.9` (fixed and content-defined chunks), `lin-2.10` (levels).

use anyhow::Result;
use serde::Serialize;

use crate::context::Context;
use crate::results::report::{bars_table, Bar};

use super::measured::{measure, All, LinOptions};
use super::phases;
use super::ways::Way;

/// An experiment over ways of compressing.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    title: &'static str,
    ways: fn() -> Vec<Way>,
    bars: fn(&All) -> Vec<Bar>,
    /// Whether it says how long the parts of the work take.
    has_phases: bool,
}

/// Compressors beside each other.
pub const COMPRESSORS: Experiment = Experiment {
    name: "lin-2.4",
    title: "Compressors alone and behind migration",
    ways: compressors,
    bars: compressors_bars,
    has_phases: false,
};
/// Deltas beside migration.
pub const DELTAS: Experiment = Experiment {
    name: "lin-2.7",
    title: "Migration and deltas",
    ways: deltas,
    bars: deltas_bars,
    has_phases: false,
};
/// Chunks of several lengths.
pub const LENGTHS: Experiment = Experiment {
    name: "lin-2.8",
    title: "Length of chunks",
    ways: lengths,
    bars: lengths_bars,
    has_phases: true,
};
/// Fixed and content-defined chunks.
pub const CUTS: Experiment = Experiment {
    name: "lin-2.9",
    title: "Fixed and content-defined chunks",
    ways: cuts,
    bars: cuts_bars,
    has_phases: true,
};
/// Levels of compressors.
pub const LEVELS: Experiment = Experiment {
    name: "lin-2.10",
    title: "Levels of compressors",
    ways: levels,
    bars: levels_bars,
    has_phases: false,
};

/// Runs an experiment.
pub fn run(context: &Context, options: &LinOptions, experiment: Experiment) -> Result<()> {
    let ways = (experiment.ways)();
    let all = measure(context, options, &ways)?;
    let phases = if experiment.has_phases { phases::measure(context, options, &ways)? } else { Vec::new() };
    let bars = (experiment.bars)(&all);
    let mut text = format!("{}\n{}", all.table(), bars_table(&bars));
    if experiment.has_phases {
        text = format!("{text}\n{}", phases::table(&phases));
    }
    #[derive(Serialize)]
    struct Parameters {
        ways: Vec<String>,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        measured: &'a [super::measured::Measured],
        phases: &'a [phases::Phased],
    }
    let results = Results { bars: &bars, measured: &all.0, phases: &phases };
    context.save(context.runs(), Parameters { ways: all.ways() }, results, &text)?;
    let (name, title) = (experiment.name, experiment.title);
    match name {
        _ if name == COMPRESSORS.name => all.draw_points(context, name, title)?,
        _ if name == LEVELS.name => all.draw_curves(context, name, title)?,
        _ if experiment.has_phases => {
            all.draw_settings(context, name, title)?;
            phases::draw_figure(context, name, &phases)?;
        }
        _ => all.draw(context, name, title)?,
    }
    context.print(&text);
    Ok(())
}

fn zstd(name: &str, arguments: &str) -> Way {
    // A window of 2 GiB must be allowed when it is given back.
    Way::filter(name, "zstd", &format!("{arguments} -q -T0"), "-d -q --long=31")
}

fn xz(level: u8) -> Way {
    Way::filter(&format!("xz -{level}"), "xz", &format!("-{level} -T0"), "-d -T0")
}

fn gzip(level: u8) -> Way {
    Way::filter(&format!("gzip -{level}"), "gzip", &format!("-{level}"), "-d")
}

fn bzip2() -> Way {
    Way::filter("bzip2 -9", "bzip2", "-9", "-d")
}

fn compressors() -> Vec<Way> {
    let mut ways = vec![gzip(6), bzip2(), zstd("zstd -3", "-3"), zstd("zstd -19", "-19"), xz(6), xz(9)];
    ways.push(zstd("zstd --long=31 -3", "--long=31 -3"));
    ways.push(zstd("zstd --long=31 -19", "--long=31 -19"));
    ways.extend([Way::seven_zip(5), Way::seven_zip(9)]);
    ways.push(Way::files("lrzip", "lrzip", "-q -f -N 0", "-q -d -f -N 0", ".lrz"));
    ways.push(Way::files("rzip -9", "rzip", "-9 -k", "-d -k", ".rz"));
    ways.push(Way::zpaq(3));
    let migrated = ["gzip", "bzip2", "zstd", "zstd --level 12", "zstd --level 19", "xz", "xz --level 9"];
    ways.extend(migrated.map(|with| Way::mzip(&format!("--with {with}"))));
    ways.extend([Way::migrated_seven_zip(5), Way::migrated_rzip()]);
    // The compressors' libraries in the same blocks: the rest is what migration gains.
    let alone = ["gzip", "bzip2", "zstd", "zstd --level 19", "xz --level 9"];
    ways.extend(alone.map(|with| Way::mzip(&format!("--with {with} --no-migration"))));
    let similar = ["finesse", "rabin"].map(|how| Way::mzip(&format!("--with gzip --similarity {how}")));
    ways.extend(similar);
    ways
}

/// The least of what one figure is of another.
fn least_ratio(all: &All, of: fn(&All, &str, &str) -> Option<f64>, way: &str, than: &str) -> Option<f64> {
    all.least(|subject| Some(of(all, subject, way)? / of(all, subject, than)?))
}

fn compressors_bars(all: &All) -> Vec<Bar> {
    let best = "mzip zstd --level 19";
    let mut bars = vec![
        Bar::at_least(
            "gzip behind migration, of gzip's factor",
            least_ratio(all, All::factor, "mzip gzip", "gzip -6"),
            1.25,
        ),
        Bar::at_least(
            "zstd -3 behind migration, of zstd's factor",
            least_ratio(all, All::factor, "mzip zstd", "zstd -3"),
            1.15,
        ),
        Bar::at_least(
            "MB/s decompressed, zstd behind migration",
            all.least(|s| all.unpack_rate(s, "mzip zstd")),
            500.0,
        ),
        Bar::at_least(
            "MB/s decompressed, zstd -19 behind migration",
            all.least(|s| all.unpack_rate(s, best)),
            500.0,
        ),
    ];
    for than in ["xz -9", "zstd --long=31 -19", "7z -mx=9"] {
        bars.push(Bar::at_least(
            format!("zstd -19 behind migration, of the factor of {than}"),
            least_ratio(all, All::factor, best, than),
            1.0,
        ));
        bars.push(Bar::at_least(
            format!("zstd -19 behind migration, of the rate of {than}"),
            least_ratio(all, All::pack_rate, best, than),
            1.0,
        ));
    }
    for with in ["gzip", "bzip2", "zstd", "zstd --level 19", "xz --level 9"] {
        let (way, alone) = (format!("mzip {with}"), format!("mzip {with} --no-migration"));
        bars.push(Bar::shown(
            format!("{with} behind migration, of the factor of the same blocks without"),
            least_ratio(all, All::factor, &way, &alone),
        ));
    }
    for than in ["7z -mx=5", "rzip -9"] {
        bars.push(Bar::shown(
            format!("{than} behind migration, of its factor alone"),
            least_ratio(all, All::factor, &format!("mzip none + {than}"), than),
        ));
    }
    for how in ["finesse", "rabin"] {
        let other = format!("mzip gzip --similarity {how}");
        bars.push(Bar::at_least(
            format!("Odess, of the factor of {how}, gzip"),
            least_ratio(all, All::factor, "mzip gzip", &other),
            0.99,
        ));
        bars.push(Bar::shown(
            format!("Odess, of the rate of {how}, gzip"),
            least_ratio(all, All::pack_rate, "mzip gzip", &other),
        ));
    }
    bars
}

fn deltas() -> Vec<Way> {
    let with = ["gzip", "zstd"];
    let mut ways = vec![gzip(6), zstd("zstd -3", "-3")];
    ways.extend(with.map(|with| Way::mzip(&format!("--with {with}"))));
    ways.extend(with.map(|with| Way::mzip(&format!("--with {with} --delta"))));
    ways
}

fn deltas_bars(all: &All) -> Vec<Bar> {
    let than = "mzip gzip --delta";
    vec![
        Bar::at_least(
            "migration, of the factor of deltas, gzip",
            least_ratio(all, All::factor, "mzip gzip", than),
            1.008,
        ),
        Bar::at_least(
            "migration, of the rate of deltas, gzip",
            least_ratio(all, All::pack_rate, "mzip gzip", than),
            1.07,
        ),
        Bar::at_least("the same, given back", least_ratio(all, All::unpack_rate, "mzip gzip", than), 1.29),
    ]
}

fn lengths() -> Vec<Way> {
    let chunks = ["cdc:2k", "cdc:4k", "cdc:8k", "cdc:16k", "cdc:32k"];
    let with = |with: &'static str| chunks.map(|chunk| Way::mzip(&format!("--with {with} --chunk {chunk}")));
    [with("gzip"), with("zstd")].concat()
}

fn lengths_bars(all: &All) -> Vec<Bar> {
    let way = |bytes: &str| format!("mzip gzip --chunk cdc:{bytes}");
    let ratio = |a: &str, b: &str| least_ratio(all, All::factor, &way(a), &way(b));
    vec![
        Bar::shown("chunks of 2 KiB, of the factor of 8 KiB, gzip", ratio("2k", "8k")),
        Bar::at_least("chunks of 8 KiB, of the factor of 32 KiB, gzip", ratio("8k", "32k"), 1.0),
    ]
}

fn cuts() -> Vec<Way> {
    let chunks = ["8k", "cdc:8k", "4k", "cdc:4k"];
    let with = |with: &'static str| chunks.map(|chunk| Way::mzip(&format!("--with {with} --chunk {chunk}")));
    [with("gzip"), with("zstd")].concat()
}

fn cuts_bars(all: &All) -> Vec<Bar> {
    let way = |chunk: &str| format!("mzip gzip --chunk {chunk}");
    let ratio = least_ratio(all, All::factor, &way("cdc:8k"), &way("8k"));
    vec![Bar::shown("content-defined chunks, of the factor of fixed ones, gzip, 8 KiB", ratio)]
}

fn levels() -> Vec<Way> {
    let mut ways = vec![gzip(6), gzip(9), zstd("zstd -3", "-3"), zstd("zstd -19", "-19"), xz(6), xz(9)];
    let migrated = [
        "gzip --level 6",
        "gzip --level 9",
        "gzip --level 10",
        "gzip --level 12",
        "zstd --level 1",
        "zstd --level 3",
        "zstd --level 6",
        "zstd --level 9",
        "zstd --level 12",
        "zstd --level 15",
        "zstd --level 19",
        "xz --level 6",
        "xz --level 9",
    ];
    ways.extend(migrated.map(|with| Way::mzip(&format!("--with {with}"))));
    ways
}

fn levels_bars(all: &All) -> Vec<Bar> {
    let ratio = |of| least_ratio(all, of, "mzip gzip --level 6", "gzip -9");
    vec![
        Bar::at_least("gzip -6 behind migration, of the factor of gzip -9", ratio(All::factor), 1.0),
        Bar::at_least("gzip -6 behind migration, of the rate of gzip -9", ratio(All::pack_rate), 1.0),
    ]
}
