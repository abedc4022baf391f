//! Reasons why a packet or a message goes no further.

/// An enum of reasons, each with the stable name that operators and programs see.
#[macro_export]
macro_rules! reasons {
    ($(#[doc = $about:literal])+ $vis:vis enum $Reason:ident {
        $($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        $vis enum $Reason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl $Reason {
            /// All reasons, in the order of their numbers.
            $vis const ALL: [Self; Self::COUNT] = [$(Self::$variant),+];
            /// How many reasons there are.
            $vis const COUNT: usize = [$($name),+].len();

            /// The stable name in output.
            $vis fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    reasons! {
        /// Of this test.
        enum Reason {
            /// The first.
            TooOld = "too_old",
            /// The second.
            Forged = "forged",
        }
    }

    #[test]
    fn reasons_are_numbered_in_their_order_and_have_their_names() {
        assert_eq!(Reason::ALL, [Reason::TooOld, Reason::Forged]);
        assert_eq!(Reason::ALL.map(|reason| reason as usize), [0, 1]);
        assert_eq!(Reason::ALL.map(Reason::name), ["too_old", "forged"]);
    }
}
