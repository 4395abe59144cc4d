//! Manifests: the settings of a container in objects of Kubernetes.
//!
//! Owns: finding the container in a workload, its arguments, and the files that `ConfigMap`s of the
//! same manifests mount into it. Does not own: the meaning of the arguments.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::files::{ContainerFiles, first_line};
use crate::input_fault::InputFault;

/// A container with its files.
#[derive(Debug)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Its `args`, after the rest of `command`.
    pub arguments: Vec<String>,
    /// Variables of its environment with a value.
    pub environment: Vec<(String, String)>,
    /// Variables with a value from a `Secret`, and the secret's name and key.
    pub secrets: Vec<(String, String)>,
    /// What `ConfigMap`s mount into it.
    pub files: ContainerFiles,
}

/// Finds a container in manifests, each of one or more YAML documents. `name` is its name; otherwise
/// it is the only one whose name or image contains `program`.
///
/// # Errors
/// If a manifest is no YAML, or no single container can be chosen.
pub fn find(
    manifests: &[(String, String)],
    name: Option<&str>,
    program: &str,
) -> Result<Container, InputFault> {
    let objects = objects(manifests)?;
    let mut found = Vec::new();
    for pod in objects.iter().filter_map(pod) {
        let containers =
            ["containers", "initContainers"].iter().filter_map(|key| pod[key].as_array()).flatten();
        found.extend(containers.filter(|container| is_meant(container, name, program)).map(|c| (pod, c)));
    }
    match found[..] {
        [(pod, container)] => {
            let mut environment =
                variables(container, |variable| variable["value"].as_str().map(str::to_owned));
            environment.extend(variables(container, |variable| public_value(&objects, variable)));
            let secrets = variables(container, |variable| {
                if public_value(&objects, variable).is_some() {
                    return None;
                }
                let reference = variable["valueFrom"]["secretKeyRef"].as_object()?;
                Some(format!("{}/{}", text(reference.get("name")?), text(reference.get("key")?)))
            });
            Ok(Container {
                name: text(&container["name"]).to_owned(),
                arguments: arguments(container)
                    .iter()
                    .map(|argument| expanded(argument, &environment))
                    .collect(),
                files: files(&objects, pod, container),
                environment,
                secrets,
            })
        }
        [] => Err(InputFault::Container(match name {
            Some(name) => format!("no container is called {name:?}"),
            None => format!("no container has {program:?} in its name or image; name it with --container"),
        })),
        _ => {
            let names: Vec<_> = found.iter().map(|(_, container)| text(&container["name"])).collect();
            Err(InputFault::Container(format!(
                "several containers fit: {}; name one with --container",
                names.join(", ")
            )))
        }
    }
}

/// The objects in manifests.
///
/// # Errors
/// If a manifest is no YAML.
pub fn objects(manifests: &[(String, String)]) -> Result<Vec<Value>, InputFault> {
    let mut objects = Vec::new();
    for (file, text) in manifests {
        let fault = |why: String| InputFault::File { name: file.clone(), why };
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(text).map_err(|error| fault(first_line(&error)))?;
        objects.extend(documents.into_iter().flat_map(items));
    }
    Ok(objects)
}

/// The objects of a document; a `List` has several.
fn items(document: Value) -> Vec<Value> {
    match document {
        Value::Object(mut members)
            if members.get("kind").is_some_and(|kind| text(kind).ends_with("List")) =>
        {
            match members.remove("items") {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            }
        }
        other => vec![other],
    }
}

/// The specification of the pods of a workload, or of a pod.
fn pod(object: &Value) -> Option<&Value> {
    let spec = match text(&object["kind"]) {
        "Pod" => &object["spec"],
        "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"]["spec"],
        _ => &object["spec"]["template"]["spec"],
    };
    spec.is_object().then_some(spec)
}

fn is_meant(container: &Value, name: Option<&str>, program: &str) -> bool {
    match name {
        Some(name) => text(&container["name"]) == name,
        None => ["name", "image"].iter().any(|key| text(&container[key]).contains(program)),
    }
}

/// What the program gets behind its own name.
fn arguments(container: &Value) -> Vec<String> {
    let list = |key: &str| container[key].as_array().into_iter().flatten().map(|item| text(item).to_owned());
    list("command").skip(1).chain(list("args")).collect()
}

fn variables(container: &Value, value: impl Fn(&Value) -> Option<String>) -> Vec<(String, String)> {
    let all = container["env"].as_array().into_iter().flatten();
    all.filter_map(|variable| Some((text(&variable["name"]).to_owned(), value(variable)?))).collect()
}

/// The value of a variable that is no secret although it is a key of a `Secret`, such as the ID of a
/// client: if the `Secret` is in the manifests.
fn public_value(objects: &[Value], variable: &Value) -> Option<String> {
    if text(&variable["name"]).contains("SECRET") {
        return None;
    }
    let reference = &variable["valueFrom"]["secretKeyRef"];
    let is_meant = |object: &&Value| {
        text(&object["kind"]) == "Secret" && object["metadata"]["name"] == reference["name"]
    };
    let secret = objects.iter().find(is_meant)?;
    let key = text(&reference["key"]);
    let plain = || secret["stringData"][key].as_str().map(str::to_owned);
    let encoded = STANDARD.decode(secret["data"][key].as_str().unwrap_or_default());
    encoded
        .ok()
        .filter(|bytes| !bytes.is_empty())
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .or_else(plain)
}

/// An argument with its `$(NAME)` replaced, as Kubernetes does; unknown ones stay.
fn expanded(argument: &str, environment: &[(String, String)]) -> String {
    environment
        .iter()
        .fold(argument.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value))
}

/// The files that `ConfigMap`s of these objects mount into a container.
fn files(objects: &[Value], pod: &Value, container: &Value) -> ContainerFiles {
    let mut files = ContainerFiles::default();
    for mount in container["volumeMounts"].as_array().into_iter().flatten() {
        let is_its = |volume: &&Value| volume["name"] == mount["name"];
        let Some(volume) = pod["volumes"].as_array().into_iter().flatten().find(is_its) else { continue };
        let map = &volume["configMap"]["name"];
        let is_named =
            |object: &&Value| text(&object["kind"]) == "ConfigMap" && object["metadata"]["name"] == *map;
        let Some(data) = objects.iter().find(is_named).and_then(|object| object["data"].as_object()) else {
            continue;
        };
        let (folder, sub) = (text(&mount["mountPath"]).trim_end_matches('/'), text(&mount["subPath"]));
        for (key, content) in data {
            if sub.is_empty() {
                files.add(format!("{folder}/{}", mounted_as(volume, key)), text(content));
            } else if sub == key {
                files.add(folder, text(content));
            }
        }
    }
    files
}

/// The path of a key below its mount: `items` may rename it.
fn mounted_as<'v>(volume: &'v Value, key: &'v str) -> &'v str {
    let mut items = volume["configMap"]["items"].as_array().into_iter().flatten();
    items.find(|item| text(&item["key"]) == key).map_or(key, |item| text(&item["path"]))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
