//! A schedule row as it was read: numbers only, not yet judged.

/// The fields of a schedule row that matter to the queue. A number that was absent, or of a type that is
/// not accepted for it, is NaN: NaN is refused wherever a number is judged, so nothing turns into 0.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// `nextRenderTime`, ms since the epoch.
    pub due: f64,
    /// `effectiveInterval`, ms.
    pub interval: f64,
    /// `changedAt`, ms since the epoch.
    pub changed_at: f64,
    /// `urgentAt`, ms since the epoch.
    pub urgent_at: f64,
    /// `demandPeriod`, ms.
    pub demand: f64,
    /// `fromSitemap`.
    pub from_sitemap: bool,
}

impl Row {
    /// A row of which nothing is known but when it is due.
    pub fn due_at(due: f64) -> Row {
        Row {
            due,
            interval: f64::NAN,
            changed_at: f64::NAN,
            urgent_at: f64::NAN,
            demand: f64::NAN,
            from_sitemap: false,
        }
    }
}

/// Whether a number counts as given where SPEC says "finite > 0".
pub fn given(number: f64) -> bool {
    number.is_finite() && number > 0.0
}
