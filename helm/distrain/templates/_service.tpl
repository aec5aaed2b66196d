{{/* serve.yaml, without secrets: they are files and variables from Secrets. */}}
{{- define "distrain.serveYaml" -}}
{{- $tls := .Values.tls.enabled -}}
{{- $url := include "distrain.publicUrl" . -}}
data_dir: /var/lib/distrain/serve
listen:
  host: 0.0.0.0
  port: 8686
  {{- if $tls }}
  tls: {cert_file: /etc/distrain/tls/service.pem, key_file: /etc/distrain/tls/service-key.pem}
  {{- else }}
  insecure: true
  {{- end }}
  {{- with $url }}
  public_url: {{ . | quote }}
  {{- end }}
admins: {{ toJson .Values.service.admins }}
{{- range $section := list "projects" "limits" "retention" }}
{{- with index $.Values.service $section }}
{{ $section }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
clusters:
  {{- if include "distrain.hasCluster" . }}
  {{ .Values.cluster.name }}: {{- include "distrain.ownCluster" . | nindent 4 }}
  {{- end }}
  {{- range $name, $cluster := .Values.clusters }}
  {{ $name }}: {{- include "distrain.otherCluster" (list $ $name $cluster) | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "distrain.ownCluster" -}}
{{- $roots := concat .Values.cluster.allowedRoots (ternary (list .Values.data.mountPath) list (ne .Values.data.existingClaim "")) -}}
kind: {{ ternary "kubernetes" "address" .Values.workers.autoscale.enabled }}
url: {{ ternary "https" "http" .Values.tls.enabled }}://{{ include "distrain.schedulerHost" . }}:8787
{{- if .Values.tls.enabled }}
tls: {ca_file: /etc/distrain/tls/ca.pem}
{{- end }}
token_file: /etc/distrain/token/token
run_root: {{ include "distrain.runRoot" . }}
# Never empty: an empty list would allow every path.
allowed_roots: {{ toJson ($roots | default (list (include "distrain.runRoot" .))) }}
model_packages: {{ toJson .Values.cluster.modelPackages }}
projects: {{ toJson .Values.cluster.projects }}
max_priority: {{ .Values.cluster.maxPriority }}
{{- if .Values.workers.autoscale.enabled }}
idle_stop_s: {{ .Values.workers.autoscale.idleSeconds }}
kubernetes:
  workload: {{ include "distrain.workload" . }}
  min_workers: {{ .Values.workers.autoscale.min }}
  max_workers: {{ .Values.workers.autoscale.max }}
{{- end }}
{{- end -}}

{{- define "distrain.otherCluster" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}{{- $cluster := index . 2 -}}
kind: address
url: {{ $cluster.url | quote }}
{{- if $cluster.caSecret }}
tls: {ca_file: /etc/distrain/clusters/{{ $name }}/ca.pem}
{{- end }}
{{- if $cluster.tokenSecret }}
token_file: /etc/distrain/clusters/{{ $name }}/token
{{- end }}
{{- $runRoot := $cluster.runRoot | default (include "distrain.runRoot" $root) }}
run_root: {{ $runRoot }}
allowed_roots: {{ toJson ($cluster.allowedRoots | default (list $runRoot)) }}
model_packages: {{ toJson ($cluster.modelPackages | default list) }}
projects: {{ toJson ($cluster.projects | default list) }}
max_priority: {{ $cluster.maxPriority | default 1000 }}
{{- end -}}

{{/* A pod of the service. Arguments: a dict of root, component, args, scales (whether it may scale workers), api. */}}
{{- define "distrain.servicePod" -}}
{{- $root := .root -}}{{- $part := $root.Values.service -}}
{{- $scales := and .scales $root.Values.workers.autoscale.enabled (include "distrain.hasCluster" $root) -}}
serviceAccountName: {{ include "distrain.fullname" $root }}-service
automountServiceAccountToken: {{ if $scales }}true{{ else }}false{{ end }}
enableServiceLinks: false
{{- include "distrain.podBasics" (dict "root" $root "component" .component "part" $part) }}
{{ include "distrain.podSecurity" (dict "root" $root "part" $part "localPorts" false) }}
{{- if include "distrain.hasPostgres" $root }}
initContainers:
  # It waits for a lock of the database; only the first pod has work to do.
  - name: migrate
    args: [serve, migrate, --config=/etc/distrain/serve.yaml]
    {{- include "distrain.serviceContainer" $root | nindent 4 }}
{{- end }}
containers:
  - name: {{ .component }}
    args: {{- toYaml .args | nindent 6 }}
    {{- include "distrain.serviceContainer" $root | nindent 4 }}
    {{- if .api }}
    ports:
      - {name: api, containerPort: 8686, protocol: TCP}
    {{- if include "distrain.hasPostgres" $root }}
    # New requests arrive until all nodes know that this pod terminates.
    lifecycle:
      preStop: {exec: {command: [sleep, "5"]}}
    {{- end }}
    {{- $scheme := ternary "HTTPS" "HTTP" $root.Values.tls.enabled }}
    startupProbe:
      httpGet: {path: /livez, port: api, scheme: {{ $scheme }}}
      periodSeconds: 5
      failureThreshold: 60
    # Not /readyz: a missing database or reconciler affects all pods, and their 503 explains what fails.
    readinessProbe:
      httpGet: {path: /livez, port: api, scheme: {{ $scheme }}}
      periodSeconds: 10
      timeoutSeconds: 5
    livenessProbe:
      httpGet: {path: /livez, port: api, scheme: {{ $scheme }}}
      periodSeconds: 20
      timeoutSeconds: 10
      failureThreshold: 6
    {{- else }}
    # No probe: /readyz of the API reports one that hangs.
    {{- end }}
volumes:
  - name: tmp
    emptyDir: {sizeLimit: 2Gi}
  - name: config
    configMap: {name: {{ include "distrain.fullname" $root }}-service}
  - name: state
    {{- if include "distrain.hasPostgres" $root }}
    emptyDir: {sizeLimit: 1Gi}
    {{- else }}
    persistentVolumeClaim: {claimName: {{ $part.persistence.existingClaim | default (printf "%s-service" (include "distrain.fullname" $root)) }}}
    {{- end }}
  {{- if include "distrain.hasCluster" $root }}
  - name: token
    secret: {secretName: {{ include "distrain.tokenSecret" $root }}, defaultMode: 0440}
  {{- end }}
  {{- range $name, $cluster := $root.Values.clusters }}
  {{- if or $cluster.tokenSecret $cluster.caSecret }}
  - name: cluster-{{ $name }}
    projected:
      defaultMode: 0440
      sources:
        {{- with $cluster.tokenSecret }}
        - secret: {name: {{ .name }}, items: [{key: {{ .key }}, path: token}]}
        {{- end }}
        {{- with $cluster.caSecret }}
        - secret: {name: {{ .name }}, items: [{key: {{ .key }}, path: ca.pem}]}
        {{- end }}
  {{- end }}
  {{- end }}
  {{- include "distrain.tlsVolume" (list $root "service") | trim | nindent 2 }}
  {{- include "distrain.fileVolumes" (list $root $part) | trim | nindent 2 }}
{{- end -}}

{{/* The common part of the service's containers. */}}
{{- define "distrain.serviceContainer" -}}
{{- $part := .Values.service -}}
image: {{ include "distrain.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [tini, --, distrain]
env:
  - {name: HOME, value: /tmp}
  # The GPU image asks for all GPUs of a node, which a runtime may grant without a request.
  - {name: NVIDIA_VISIBLE_DEVICES, value: void}
  - {name: DISTRAIN_SERVE_CONFIG, value: /etc/distrain/serve.yaml}
  # The image uses the PVC's root, which Kubernetes makes accessible to the group.
  - {name: DISTRAIN_SERVE_DATA_DIR, value: /var/lib/distrain/serve}
  {{- if include "distrain.hasPostgres" . }}
  - name: DISTRAIN_SERVE_DATABASE_URL
    valueFrom: {secretKeyRef: {name: {{ $part.database.existingSecret }}, key: {{ $part.database.key }}}}
  {{- end }}
  {{- include "distrain.ownEnv" $part | trim | nindent 2 }}
{{- include "distrain.envFrom" $part }}
resources: {{- toYaml $part.resources | nindent 2 }}
{{ include "distrain.containerSecurity" $part }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: config, mountPath: /etc/distrain/serve.yaml, subPath: serve.yaml, readOnly: true}
  - {name: state, mountPath: /var/lib/distrain}
  {{- if include "distrain.hasCluster" . }}
  - {name: token, mountPath: /etc/distrain/token, readOnly: true}
  {{- end }}
  {{- range $name, $cluster := .Values.clusters }}
  {{- if or $cluster.tokenSecret $cluster.caSecret }}
  - {name: cluster-{{ $name }}, mountPath: /etc/distrain/clusters/{{ $name }}, readOnly: true}
  {{- end }}
  {{- end }}
  {{- include "distrain.tlsMount" . | trim | nindent 2 }}
  {{- include "distrain.fileMounts" (list . $part) | trim | nindent 2 }}
{{- end -}}
