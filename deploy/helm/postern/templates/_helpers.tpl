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
external_traffic_policy = {{ .Values.gatewayApi.externalTrafficPolicy | quote }}
selector = { "app.kubernetes.io/name" = "{{ include "postern.name" . }}", "app.kubernetes.io/instance" = "{{ .Release.Name }}" }
{{- end -}}

{{/* The configuration of the pods: the value, and what the chart writes. */}}
{{- define "postern.configuration" -}}
{{- trim .Values.configuration -}}
{{- if .Values.gatewayApi.enabled -}}
{{- printf "\n\n%s" (include "postern.gatewayApi" .) -}}
{{- end -}}
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

{{/* Milliseconds of a duration of the configuration, such as "1m30s". Empty: it is none. */}}
{{- define "postern.milliseconds" -}}
{{- /* More digits than these would exceed an integer. */}}
{{- $part := "(0*[0-9]{1,11}%s)?" -}}
{{- $whole := "" -}}
{{- range list "d" "h" "m" "s" "ms" -}}{{- $whole = print $whole (printf $part .) -}}{{- end -}}
{{- if and (kindIs "string" .) . (regexMatch (printf "^%s$" $whole) (toString .)) -}}
{{- $units := dict "d" 86400000 "h" 3600000 "m" 60000 "s" 1000 "ms" 1 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+[a-z]+" . -1 -}}
{{- /* Without its zeros at the front, with which it would be octal. */}}
{{- $number := regexFind "[1-9][0-9]*" . | int64 -}}
{{- $sum = add $sum (mul $number (get $units (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}
{{- end -}}

{{/* The labels of the series `up` of the pods, as a selector of PromQL. */}}
{{- define "postern.upSelector" -}}
{{- /* The job of a ServiceMonitor has the name of the Service. */}}
{{- $own := dict "job" (printf "%s-admin" (include "postern.name" .)) "namespace" .Release.Namespace -}}
{{- $selectors := list -}}
{{- range $label, $value := default $own .Values.monitoring.upLabels -}}
{{- $selectors = append $selectors (printf "%s=%q" $label $value) -}}
{{- end -}}
{{- join "," $selectors -}}
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
{{- $first := int .Values.gatewayApi.firstPort -}}
{{- $last := int .Values.gatewayApi.lastPort -}}
{{- if gt $first $last -}}
{{- fail "`gatewayApi.lastPort` is less than `gatewayApi.firstPort`" -}}
{{- end -}}
{{- if .Values.gatewayApi.enabled -}}
{{- $others := dict "`admin.port`" .Values.admin.port -}}
{{- range .Values.service.ports -}}
{{- $_ := set $others (printf "the containerPort of service port %q" .name) .containerPort -}}
{{- end -}}
{{- range $what, $port := $others -}}
{{- if and (ge (int $port) $first) (le (int $port) $last) -}}
{{- fail (printf "%s is %v, which lies between `gatewayApi.firstPort` (%v) and `gatewayApi.lastPort` (%v): these ports are for Gateways, and the network policy admits their clients to each. Choose another port, or another range" $what $port $first $last) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.autoscaling -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- fail (printf "`autoscaling.minReplicas` is %v and `autoscaling.maxReplicas` is %v: raise the latter to at least %v" .minReplicas .maxReplicas .minReplicas) -}}
{{- end -}}
{{- end -}}
{{- with .Values.strategy -}}
{{- $none := "^0+%?$" -}}
{{- if and (eq .type "RollingUpdate") (regexMatch $none (toString .rollingUpdate.maxSurge)) (regexMatch $none (toString .rollingUpdate.maxUnavailable)) -}}
{{- fail "`strategy.rollingUpdate.maxSurge` and `strategy.rollingUpdate.maxUnavailable` are both 0, so no pod could be replaced: set one to 1" -}}
{{- end -}}
{{- end -}}
{{- with .Values.monitoring -}}
{{- if and .rules (not .serviceMonitor) (not .upLabels) -}}
{{- fail "`monitoring.rules` needs to know which series `up` the pods have, and without `monitoring.serviceMonitor` the chart does not: set `monitoring.upLabels` to labels that only they have in Prometheus, such as { job: JOB }" -}}
{{- end -}}
{{- end -}}
{{- if not .Values.existingConfigMap -}}
{{- $toml := fromToml .Values.configuration -}}
{{- if hasKey $toml "Error" -}}
{{- fail (printf "`configuration` is not TOML: %s" $toml.Error) -}}
{{- end -}}
{{- if and (hasKey $toml "gateway_api") (not .Values.gatewayApi.enabled) -}}
{{- fail "the configuration has `[gateway_api]`: set `gatewayApi.enabled` of the chart, which also grants the rights" -}}
{{- end -}}
{{- range $key, $_ := default dict $toml.gateway_api -}}
{{- if ne $key "listener" -}}
{{- fail (printf "the configuration has gateway_api.%s: remove it; the chart writes this table from its values `gatewayApi`, except gateway_api.listener" $key) -}}
{{- end -}}
{{- end -}}
{{- $whole := include "postern.configuration" . | fromToml -}}
{{- if hasKey $whole "Error" -}}
{{- fail (printf "the chart writes the table `[gateway_api]`, and with it the configuration is not TOML: %s. Remove the header `[gateway_api]` from `configuration`; settings of the listeners are below `[gateway_api.listener]`" $whole.Error) -}}
{{- end -}}
{{- $admin := dig "admin" "address" "127.0.0.1:9901" $toml -}}
{{- if not (hasSuffix (printf ":%v" .Values.admin.port) $admin) -}}
{{- fail (printf "the configuration's admin.address is %q, and probes go to port %v: set admin.address = \"0.0.0.0:%v\" there, or `admin.port` here" $admin .Values.admin.port .Values.admin.port) -}}
{{- end -}}
{{- if include "postern.isLoopback" $admin -}}
{{- fail (printf "the configuration's admin.address is %q, which no probe reaches in a pod: set admin.address = \"0.0.0.0:%v\"" $admin .Values.admin.port) -}}
{{- end -}}
{{- $drain := dig "server" "drain_timeout" "30s" $toml -}}
{{- $milliseconds := include "postern.milliseconds" $drain -}}
{{- if not $milliseconds -}}
{{- fail (printf "the configuration's server.drain_timeout is %s, which is not a duration, or far too long: write one such as \"30s\", \"1m30s\" or \"1500ms\"" (toJson $drain)) -}}
{{- end -}}
{{- $seconds := div (add $milliseconds 999) 1000 -}}
{{- if gt $seconds (int64 .Values.termination.drainSeconds) -}}
{{- fail (printf "the configuration's server.drain_timeout is %q, and `termination.drainSeconds` is %v: the kubelet would end the pod before. Set it to %v" $drain .Values.termination.drainSeconds $seconds) -}}
{{- end -}}
{{- range $table, $keys := $toml -}}
{{- if kindIs "map" $keys -}}
{{- if hasPrefix "sqlite:" (get $keys "database" | toString) -}}
{{- $changes := list -}}
{{- if $.Values.autoscaling.enabled -}}
{{- $changes = append $changes "`autoscaling.enabled` to false (it is true)" -}}
{{- end -}}
{{- if gt (int $.Values.replicas) 1 -}}
{{- $changes = append $changes (printf "`replicas` to 1 (it is %v)" $.Values.replicas) -}}
{{- end -}}
{{- /* Other strategies start a pod before the former one has ended. */}}
{{- if ne $.Values.strategy.type "Recreate" -}}
{{- $changes = append $changes (printf "`strategy.type` to Recreate (it is %s)" $.Values.strategy.type) -}}
{{- end -}}
{{- if $changes -}}
{{- fail (printf "the configuration's %s.database is an SQLite file, which is for one pod at a time: set %s. For several pods use PostgreSQL" $table (join ", " $changes)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $addresses := list -}}
{{- /* `postern check` refuses a listener without an address. */}}
{{- range (default list $toml.listener) -}}{{- with .address -}}{{- $addresses = append $addresses . -}}{{- end -}}{{- end -}}
{{- with $toml.provider -}}{{- $addresses = append $addresses (default "127.0.0.1:9000" .address) -}}{{- end -}}
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
