//! Which SAs a command means: `terminate`, `rekey` and `list-sas` name them alike.

use testudo_ike::output::{ChildSaId, IkeSaId};

/// The SAs that match every given field. With `child` or `child_id` Child SAs are meant, else IKE
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
    /// Nothing is given, so everything matches.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether Child SAs are meant.
    pub fn is_of_children(&self) -> bool {
        self.child.is_some() || self.child_id.is_some()
    }

    /// Whether an IKE SA matches what is said of IKE SAs; one without a connection does not know it
    /// yet.
    pub fn takes_ike(&self, id: IkeSaId, connection: Option<&str>) -> bool {
        self.ike_id.is_none_or(|wanted| wanted == id)
            && self.ike.as_deref().is_none_or(|name| connection == Some(name))
    }

    /// Whether a Child SA matches what is said of Child SAs.
    pub fn takes_child(&self, id: ChildSaId, name: &str) -> bool {
        self.child_id.is_none_or(|wanted| wanted == id)
            && self.child.as_deref().is_none_or(|wanted| wanted == name)
    }
}
