//! Classes of Ingresses.
//!
//! Owns: whether an Ingress is ours.
//! Does not own: what it asks for.
//! Flow: annotation, else `ingressClassName`, else the default class → [`Class`].

use crate::fault::Fault;
use crate::known::Known;
use crate::names::Name;
use crate::objects::ingress::annotation;
use crate::objects::{Ingress, IngressClass};
use crate::settings::Settings;

/// The class that the deprecated annotation may name without an IngressClass.
pub const CLASS: &str = "postern";

/// Whose an Ingress is.
#[derive(Clone, Debug, PartialEq)]
pub enum Class {
    /// It is served here.
    Ours,
    /// Ours, but the class cannot be used.
    Faulty(Fault),
    /// It is somebody else's.
    Foreign,
}

/// The class of an Ingress. Without one it is of the default class, if there is exactly one.
pub fn of_ingress(known: &Known, settings: &Settings, ingress: &Ingress) -> Class {
    let spec = &ingress.spec;
    match spec.class().filter(|name| !name.is_empty()) {
        Some(name) => match known.ingress_classes.get(name) {
            Some(class) => judge(settings, class),
            None => {
                let by_annotation = annotation(&spec.annotations, "kubernetes.io/ingress.class");
                if by_annotation.is_some_and(|name| *name == CLASS) { Class::Ours } else { Class::Foreign }
            }
        },
        None => {
            let mut defaults = known.ingress_classes.values().filter(|class| class.spec.is_default());
            match (defaults.next(), defaults.next()) {
                (Some(only), None) => judge(settings, only),
                _ => Class::Foreign,
            }
        }
    }
}

fn judge(settings: &Settings, class: &IngressClass) -> Class {
    if class.spec.controller != settings.controller_name {
        return Class::Foreign;
    }
    let faulty = |message: String| Class::Faulty(Fault::new("InvalidClass", message));
    let name: &Name = &class.meta.at.name;
    if let Some(problem) = &class.not_understood {
        return faulty(format!("IngressClass {name} is not used, because of {problem}"));
    }
    match &class.spec.parameters {
        Some(_) => {
            faulty(format!("IngressClass {name} has parameters, which are not supported: remove them"))
        }
        None => Class::Ours,
    }
}
