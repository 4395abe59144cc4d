{{/* Name of the objects. */}}
{{- define "postern.name" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels that select the pods. They never change. */}}
{{- define "postern.selector" -}}
app.kubernetes.io/name: {{ include "postern.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "postern.labels" -}}
{{ include "postern.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: postern
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "postern.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "postern.account" -}}
{{- default (include "postern.name" .) .Values.serviceAccount.name -}}
{{- end -}}

{{/* Whether the pods send requests to the API server. */}}
{{- define "postern.hasRights" -}}
{{- if or .Values.gatewayApi.enabled .Values.kubernetes.ask .Values.kubernetes.watch .Values.kubernetes.openshift }}true{{ end -}}
{{- end -}}

{{/* The table `[gateway_api]`. It may follow `[gateway_api.listener]` of `configuration`. */}}
{{- define "postern.gatewayApi" -}}
# From the values `gatewayApi` of the chart.
[gateway_api]
controller_name = {{ .Values.gatewayApi.controllerName | quote }}
default_policy = {{ .Values.gatewayApi.defaultPolicy | quote }}
lease = "{{ include "postern.name" . }}-gateway-api"
{{- if .Values.gatewayApi.experimental }}
experimental = true
{{- end }}
{{- if .Values.gatewayApi.exclusiveHosts }}
exclusive_hosts = true
{{- end }}
{{- with .Values.gatewayApi.policiesMayUse }}
policies_may_use = {{ toJson . }}
{{- end }}
{{- with .Values.gatewayApi.ingressGateway }}
ingress_gateway = {{ . | quote }}
{{- end }}
{{- if .Values.gatewayApi.namespaces }}
namespaces = {{ include "postern.namespaces" . }}
{{- end }}
{{- with .Values.gatewayApi.zone }}
zone = {{ . | quote }}
{{- else }}
# By the label topology.kubernetes.io/zone of the pod.
zone_file = "/etc/podinfo/zone"
{{- end }}

# Each Gateway has a Service in this namespace, and ports of its own on the pods.
[gateway_api.service]
first_port = {{ int .Values.gatewayApi.firstPort }}
last_port = {{ int .Values.gatewayApi.lastPort }}
selector = { "app.kubernetes.io/name" = "{{ include "postern.name" . }}", "app.kubernetes.io/instance" = "{{ .Release.Name }}" }
{{- end -}}

{{/* Namespaces whose objects count, as JSON. That of the release is one: the Services of Gateways are
there. */}}
{{- define "postern.namespaces" -}}
{{- append .Values.gatewayApi.namespaces .Release.Namespace | uniq | sortAlpha | toJson -}}
{{- end -}}

{{/* Whether an address is reached from the same pod only. */}}
{{- define "postern.isLoopback" -}}
{{- if regexMatch "^(127\\.|\\[::1\\]|localhost:)" . }}true{{ end -}}
{{- end -}}

{{/* Compares the ports of the values with the configuration, so that a mistake is an error now. */}}
{{- define "postern.check" -}}
{{- if and (not .Values.existingConfigMap) (not (trim .Values.configuration)) -}}
{{- fail "set `configuration`, or `existingConfigMap`" -}}
{{- end -}}
{{- if and .Values.existingConfigMap .Values.gatewayApi.enabled -}}
{{- fail "`existingConfigMap` and `gatewayApi.enabled` exclude each other: the chart writes the table `[gateway_api]` into `configuration`" -}}
{{- end -}}
{{- if and (not .Values.service.ports) (not .Values.gatewayApi.enabled) -}}
{{- fail "set `service.ports`: without `gatewayApi.enabled` nothing else leads to Postern" -}}
{{- end -}}
{{- if and .Values.gatewayApi.enabled .Values.sidecar.containers -}}
{{- fail "`gatewayApi.enabled` and `sidecar.containers` exclude each other: the service would have the rights of the gateway" -}}
{{- end -}}
{{- if gt (int .Values.gatewayApi.firstPort) (int .Values.gatewayApi.lastPort) -}}
{{- fail "`gatewayApi.lastPort` is less than `gatewayApi.firstPort`" -}}
{{- end -}}
{{- if not .Values.existingConfigMap -}}
{{- $toml := fromToml .Values.configuration -}}
{{- if hasKey $toml "Error" -}}
{{- fail (printf "`configuration` is not TOML: %s" $toml.Error) -}}
{{- end -}}
{{- $own := default dict $toml.gateway_api -}}
{{- if and $own (not .Values.gatewayApi.enabled) -}}
{{- fail "the configuration has `[gateway_api]`: set `gatewayApi.enabled` of the chart, which also grants the rights" -}}
{{- end -}}
{{- range $key, $_ := $own -}}
{{- if ne $key "listener" -}}
{{- fail (printf "the configuration has gateway_api.%s: remove it; the chart writes this table from its values `gatewayApi`, except gateway_api.listener" $key) -}}
{{- end -}}
{{- end -}}
{{- $admin := dig "admin" "address" "127.0.0.1:9901" $toml -}}
{{- if not (hasSuffix (printf ":%v" .Values.admin.port) $admin) -}}
{{- fail (printf "the configuration's admin.address is %q, and probes go to port %v: set admin.address = \"0.0.0.0:%v\" there, or `admin.port` here" $admin .Values.admin.port .Values.admin.port) -}}
{{- end -}}
{{- if include "postern.isLoopback" $admin -}}
{{- fail (printf "the configuration's admin.address is %q, which no probe reaches in a pod: set admin.address = \"0.0.0.0:%v\"" $admin .Values.admin.port) -}}
{{- end -}}
{{- $drain := dig "server" "drain_timeout" "30s" $toml -}}
{{- $second := get (dict "s" 1 "m" 60 "h" 3600) (regexFind "[a-z]+$" $drain) | default 0 -}}
{{- $seconds := mul $second (regexFind "^[0-9]+" $drain | int) -}}
{{- if gt (int $seconds) (int .Values.termination.drainSeconds) -}}
{{- fail (printf "the configuration's server.drain_timeout is %q, and `termination.drainSeconds` is %v: the kubelet would end the pod before. Set it to %v" $drain .Values.termination.drainSeconds $seconds) -}}
{{- end -}}
{{- $addresses := list -}}
{{- range (default list $toml.listener) -}}{{- $addresses = append $addresses .address -}}{{- end -}}
{{- with $toml.provider -}}{{- $addresses = append $addresses .address -}}{{- end -}}
{{- range .Values.service.ports -}}
{{- $port := .containerPort -}}
{{- $found := false -}}
{{- $loopback := "" -}}
{{- range $addresses -}}
{{- if hasSuffix (printf ":%v" $port) . -}}
{{- if include "postern.isLoopback" . -}}{{- $loopback = . -}}{{- else -}}{{- $found = true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (not $found) $loopback -}}
{{- fail (printf "service port %q goes to containerPort %v, and its listener has the address %q, which only the pod itself reaches: use \"0.0.0.0:%v\"" .name $port $loopback $port) -}}
{{- end -}}
{{- if not $found -}}
{{- fail (printf "service port %q goes to containerPort %v, and no listener of the configuration has it: the addresses are %s" .name $port (join ", " $addresses)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
