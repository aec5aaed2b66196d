{{- define "distrain.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Pod names of a StatefulSet have an additional hash of ten characters, within the limit of 63. */}}
{{- define "distrain.fullname" -}}
{{- $name := include "distrain.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that never change in a release, since selectors are immutable. */}}
{{- define "distrain.releaseLabels" -}}
app.kubernetes.io/name: {{ include "distrain.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "distrain.labels" -}}
{{ include "distrain.releaseLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: distrain
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- include "distrain.commonLabels" . }}
{{- end -}}

{{/* The user's labels, without those of selectors and the chart. */}}
{{- define "distrain.commonLabels" -}}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Arguments: a list of the root and the component. */}}
{{- define "distrain.selector" -}}
{{ include "distrain.releaseLabels" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "distrain.hasCluster" -}}
{{- if ne .Values.mode "external" }}yes{{ end -}}
{{- end -}}

{{- define "distrain.hasPostgres" -}}
{{- if .Values.service.database.existingSecret }}yes{{ end -}}
{{- end -}}

{{/* The scheduler's host: a headless service, so that its other ports are also reachable. */}}
{{- define "distrain.schedulerHost" -}}
{{ include "distrain.fullname" . }}-scheduler.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "distrain.schedulerAddress" -}}
{{ ternary "tls" "tcp" .Values.tls.enabled }}://{{ include "distrain.schedulerHost" . }}:8786
{{- end -}}

{{- define "distrain.workload" -}}
{{- if eq .Values.mode "operator" -}}
daskworkergroup/{{ include "distrain.fullname" . }}-default
{{- else -}}
statefulset/{{ include "distrain.fullname" . }}-worker
{{- end -}}
{{- end -}}

{{- define "distrain.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default (printf "%s-cpu" .Chart.AppVersion) }}
{{- end -}}
{{- end -}}

{{/* With GPUs never the service's image, which lacks the GPU libraries. */}}
{{- define "distrain.workerImage" -}}
{{- $own := .Values.workers.image -}}
{{- $repository := $own.repository | default .Values.image.repository -}}
{{- $isOwn := or $own.repository .Values.workers.gpu.enabled -}}
{{- if $own.digest -}}
{{ $repository }}@{{ $own.digest }}
{{- else if $own.tag -}}
{{ $repository }}:{{ $own.tag }}
{{- else if $isOwn -}}
{{ $repository }}:{{ .Chart.AppVersion }}-{{ ternary "gpu" "cpu" .Values.workers.gpu.enabled }}
{{- else -}}
{{ include "distrain.image" . }}
{{- end -}}
{{- end -}}

{{- define "distrain.tokenSecret" -}}
{{ .Values.scheduler.tokenSecret | default (printf "%s-token" (include "distrain.fullname" .)) }}
{{- end -}}

{{/* Arguments: a list of the root and the role (scheduler, worker, service). */}}
{{- define "distrain.tlsSecret" -}}
{{- $root := index . 0 -}}
{{- if eq $root.Values.tls.source "existing" -}}
{{ required (printf "tls.existing.%s: name the Secret with its certificate" (index . 1)) (index $root.Values.tls.existing (index . 1)) }}
{{- else -}}
{{ include "distrain.fullname" $root }}-tls-{{ index . 1 }}
{{- end -}}
{{- end -}}

{{- define "distrain.runRoot" -}}
{{ .Values.runs.url | default .Values.runs.mountPath }}
{{- end -}}

{{- define "distrain.runsClaim" -}}
{{ .Values.runs.existingClaim | default (printf "%s-runs" (include "distrain.fullname" .)) }}
{{- end -}}

{{- define "distrain.publicUrl" -}}
{{- if .Values.service.publicUrl -}}
{{ .Values.service.publicUrl }}
{{- else if .Values.ingress.enabled -}}
{{ ternary "https" "http" (ne .Values.ingress.tlsSecret "") }}://{{ first .Values.ingress.hosts }}
{{- end -}}
{{- end -}}

{{/* Returns `yes` if a resource type of the Prometheus operator should be created. Arguments: a list of the root, the value, the kind. */}}
{{- define "distrain.monitored" -}}
{{- $root := index . 0 -}}
{{- if or (eq (index . 1) "always") (and (eq (index . 1) "auto") ($root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" (index . 2)))) }}yes{{ end -}}
{{- end -}}
