//! The SAs that a command selects: `terminate`, `rekey` and `list-sas` have the same arguments.

use testudo_ike::output::{ChildSaId, IkeSaId};

/// Selects the SAs that match every given field: Child SAs with `child` or `child_id`, else IKE
/// SAs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Name of the child.
    pub child: Option<String>,
    /// Name of the connection.
    pub ike: Option<String>,
    /// Number of the Child SA.
    pub child_id: Option<ChildSaId>,
    /// Number of the IKE SA.
    pub ike_id: Option<IkeSaId>,
}

impl Selection {
    /// True if no field is given, so that everything matches.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// True if Child SAs are selected.
    pub fn is_of_children(&self) -> bool {
        self.child.is_some() || self.child_id.is_some()
    }

    /// Whether an IKE SA matches the fields about IKE SAs. `connection` is `None` while its
    /// connection is unknown.
    pub fn takes_ike(&self, id: IkeSaId, connection: Option<&str>) -> bool {
        self.ike_id.is_none_or(|wanted| wanted == id)
            && self.ike.as_deref().is_none_or(|name| connection == Some(name))
    }

    /// Whether a Child SA matches the fields about Child SAs.
    pub fn takes_child(&self, id: ChildSaId, name: &str) -> bool {
        self.child_id.is_none_or(|wanted| wanted == id)
            && self.child.as_deref().is_none_or(|wanted| wanted == name)
    }
}
