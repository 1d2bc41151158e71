//! Restores of versions: by the clock beside a plain copy, and on the model of the paper's disk in two orders.

use std::fs;

use anyhow::Result;
use serde::Serialize;

use crate::context::Context;
use crate::layout::raw;
use crate::layout::seek_model::{SeekModel, Service, ST1000DM003};
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{figure, mb_per_second};
use crate::vaults::in_process::{LocalVault, Modelled};
use crate::workload::Version;

/// How restores are made.
const HOW: &str = "from a cold cache to a new file, synced";

/// The parameters of an experiment that restores versions.
#[derive(Debug, Serialize)]
pub struct Parameters<T: Serialize> {
    /// Those of the workload.
    #[serde(flatten)]
    workload: T,
    sources: &'static str,
    restores: &'static str,
    copies: String,
    model: SeekModel,
}

impl<T: Serialize> Parameters<T> {
    /// Of this workload, beside plain copies of a version.
    pub fn new(workload: T, copied: &str) -> Self {
        Parameters {
            workload,
            sources: "warm",
            restores: HOW,
            copies: format!("of {copied} from a cold cache to a new file, synced, just before each restore"),
            model: ST1000DM003,
        }
    }
}

/// A line of a figure: its name and its points.
pub type Line = (String, Vec<(f64, f64)>);

/// A version restored.
#[derive(Clone, Debug, Serialize)]
pub struct Read {
    /// Bytes of the version that are not zero.
    pub nonzero_bytes: u64,
    /// From a cold cache to a synced file; none where only the model was asked.
    pub seconds: Option<f64>,
    /// On the modelled disk.
    pub model: Option<Modelled>,
}

impl Read {
    /// MB/s of data from the cold cache.
    pub fn rate(&self) -> Option<f64> {
        Some(mb_per_second(self.nonzero_bytes, self.seconds?))
    }

    /// MB/s of data on the modelled disk.
    pub fn modelled_rate(&self, order: Order) -> Option<f64> {
        Some(mb_per_second(self.nonzero_bytes, order.of(self.model.as_ref()?).seconds))
    }
}

/// The order of a restore's reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    AsPlanned,
    ByAddress,
}

impl Order {
    pub const ALL: [(Order, &'static str); 2] =
        [(Order::AsPlanned, "as planned"), (Order::ByAddress, "by address")];

    pub fn of(self, model: &Modelled) -> Service {
        match self {
            Order::AsPlanned => model.as_planned,
            Order::ByAddress => model.by_address,
        }
    }
}

/// Seconds of a restore, and of a plain copy just before it.
pub struct Timed {
    /// Of a copy of the version's base image.
    pub copy_seconds: f64,
    pub restore_seconds: f64,
}

/// Copies a version's base image, then restores the version, both from a cold cache to a new file.
pub fn time(context: &Context, vault: &LocalVault, version: &Version, snapshot: &str) -> Result<Timed> {
    let target = context.space().join("restored.raw");
    context.make_cold(version.base())?;
    let (_, copy_seconds) = raw::copy(version.base(), &target)?;
    fs::remove_file(&target)?;
    context.make_cold(vault.dir())?;
    let restore_seconds = vault.restore(&version.disk, snapshot, &target)?;
    fs::remove_file(&target)?;
    Ok(Timed { copy_seconds, restore_seconds })
}

/// The headings of a table with three columns for each setting, behind columns of its own.
pub fn headings<const N: usize>(own: [&str; N], settings: &[String]) -> Vec<String> {
    let mut headings = own.map(str::to_owned).to_vec();
    for name in settings {
        headings.extend([name.clone(), "model, as planned".into(), "by address".into()]);
    }
    headings
}

/// The three cells of a setting: MB/s by the clock, and on the modelled disk in each order.
pub fn cells(rate: Option<f64>, modelled: impl Fn(Order) -> Option<f64>) -> [String; 3] {
    let [planned, by_address] = Order::ALL.map(|(order, _)| figure(modelled(order), 1));
    [figure(rate, 0), planned, by_address]
}

/// Draws rates by the clock, and in a figure of its own for each order those on the modelled disk.
pub fn draw_rates(
    context: &Context,
    (file, title, x): (&str, &str, &str),
    by_clock: Vec<Line>,
    modelled: impl Fn(Order) -> Vec<Line>,
) -> Result<()> {
    let labels = Labels { title, x, y: "MB/s" };
    draw(context.out(), file, &labels, &Figure::Lines { series: by_clock })?;
    for (order, label) in Order::ALL {
        let title = format!("{title}, modelled disk, {label}");
        let labels = Labels { title: &title, x, y: "MB/s" };
        let file = format!("{file}-model-{}", label.replace(' ', "-"));
        draw(context.out(), &file, &labels, &Figure::Lines { series: modelled(order) })?;
    }
    Ok(())
}
