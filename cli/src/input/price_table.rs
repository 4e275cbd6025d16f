//! `--reprice TABLE`: a worker's settings file, of which only the prices are used.

use std::path::Path;

use domain::decode;
use worker::PriceTable;

use crate::{input::file::read_value, terminal::ending::Ending};

/// The checked prices. If they are invalid, prints the mistakes and returns the ending of the
/// command.
pub(crate) fn read(path: &Path) -> Result<PriceTable, Ending> {
    let table = read_value(path).and_then(|document| {
        let settings = decode::value::<worker::Settings>(&document.value);
        let checked = settings.and_then(|settings| settings.check().map(|()| settings));
        checked.and_then(|settings| PriceTable::new(&settings)).map_err(|problems| document.wrong(problems))
    });
    table.map_err(|unusable| unusable.explain_as(path, "a valid table of prices (a worker's settings file)"))
}
