//! Numbers on the command line of a benchmark: `--jobs 20000`.

/// Sets each number that the command line names. All other arguments are cargo's and are ignored.
pub(crate) fn read(options: &mut [(&str, &mut usize)]) {
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if let Some((name, value)) = options.iter_mut().find(|(name, _)| *name == argument) {
            let number = arguments.next().and_then(|number| number.parse().ok());
            **value = number.unwrap_or_else(|| panic!("{name} takes a number"));
        }
    }
}
