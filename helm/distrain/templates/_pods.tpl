{{/* The common part of all pods. Arguments: a dict of root, component, part (its values). */}}
{{- define "distrain.podBasics" -}}
{{- $root := .root -}}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
terminationGracePeriodSeconds: {{ .part.terminationGracePeriodSeconds }}
{{- with .part.schedulerName }}
schedulerName: {{ . }}
{{- end }}
{{- with .part.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .part.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- $own := dict "labelSelector" (dict "matchLabels" (include "distrain.selector" (list $root $.component) | fromYaml)) }}
  {{- range . }}
  - {{- ternary . (merge (dict) . $own) (hasKey . "labelSelector") | toYaml | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Arguments: a dict of root, part (its values), localPorts (whether ranks use ports there). */}}
{{- define "distrain.podSecurity" -}}
{{- $pod := .root.Values.podSecurity -}}
{{- $ports := .root.Values.network.localPorts -}}
{{- /* OnRootMismatch: otherwise every start would make the service's private folder accessible to the group. */ -}}
{{- $context := dict "runAsNonRoot" true "fsGroupChangePolicy" "OnRootMismatch" "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- range $name, $value := $pod }}{{ if $value }}{{ $_ := set $context $name $value }}{{ end }}{{ end -}}
{{- if and .localPorts $ports.set (not .part.hostNetwork) -}}
{{- $range := printf "%d %d" (int $ports.first) (int $ports.last) -}}
{{- $_ := set $context "sysctls" (list (dict "name" "net.ipv4.ip_local_port_range" "value" $range)) -}}
{{- end -}}
securityContext: {{- mergeOverwrite $context .part.podSecurityContext | toYaml | nindent 2 }}
{{- end -}}

{{/* Arguments: a component's values. */}}
{{- define "distrain.containerSecurity" -}}
{{- $context := dict "allowPrivilegeEscalation" false "privileged" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) -}}
securityContext: {{- mergeOverwrite $context .securityContext | toYaml | nindent 2 }}
{{- end -}}

{{/* Arguments: a list of the root, the component and its values. */}}
{{- define "distrain.podMetadata" -}}
{{- $root := index . 0 -}}{{- $component := index . 1 -}}{{- $part := index . 2 -}}
{{- $annotations := deepCopy $part.podAnnotations -}}
{{- if has $component (list "service" "api" "reconciler") -}}
{{- $_ := set $annotations "checksum/serve.yaml" (include "distrain.serveYaml" $root | sha256sum) -}}
{{- if and $root.Values.tls.enabled (ne $root.Values.tls.source "existing") -}}
{{- /* Other names mean another certificate, which is read only at the start. */ -}}
{{- $_ := set $annotations "checksum/names" (include "distrain.certificateNames" (list $root "service") | sha256sum) -}}
{{- end -}}
{{- end -}}
labels:
  {{- include "distrain.selector" (list $root $component) | nindent 2 }}
  {{- if has $component (list "service" "api") }}
  distrain-api: "true"
  {{- end }}
  {{- include "distrain.commonLabels" $root | nindent 2 }}
  {{- with omit $part.podLabels "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "distrain-api" }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The environment variables in a component's values, as a list. */}}
{{- define "distrain.ownEnv" -}}
{{- range $name, $value := .env }}
{{- if kindIs "map" $value }}
- {name: {{ $name }}, valueFrom: {{ toJson $value.valueFrom }}}
{{- else }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "distrain.envFrom" -}}
{{- if or .envFrom .envFromSecrets }}
envFrom:
  {{- with .envFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- range .envFromSecrets }}
  - secretRef: {name: {{ . }}}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Dask's comm with TLS. Arguments: a list of the root and the role. */}}
{{- define "distrain.commEnv" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}
{{- if $root.Values.tls.enabled }}
- {name: DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION, value: "true"}
- {name: DASK_DISTRIBUTED__COMM__TLS__CA_FILE, value: /etc/distrain/tls/ca.pem}
{{- range $user := ternary (list "SCHEDULER" "CLIENT") (list "WORKER" "CLIENT") (eq $role "scheduler") }}
- {name: DASK_DISTRIBUTED__COMM__TLS__{{ $user }}__CERT, value: /etc/distrain/tls/{{ $role }}.pem}
- {name: DASK_DISTRIBUTED__COMM__TLS__{{ $user }}__KEY, value: /etc/distrain/tls/{{ $role }}-key.pem}
{{- end }}
{{- end }}
{{- end -}}

{{/* The volume with a role's certificate. Arguments: a list of the root and the role. */}}
{{- define "distrain.tlsVolume" -}}
{{- if (index . 0).Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ include "distrain.tlsSecret" . }}
    defaultMode: 0440
    items:
      - {key: ca.crt, path: ca.pem}
      - {key: tls.crt, path: {{ index . 1 }}.pem}
      - {key: tls.key, path: {{ index . 1 }}-key.pem}
{{- end }}
{{- end -}}

{{- define "distrain.tlsMount" -}}
{{- if .Values.tls.enabled }}
- {name: tls, mountPath: /etc/distrain/tls, readOnly: true}
{{- end }}
{{- end -}}

{{/* Volumes of run folders and data, equal in all pods, and a component's own volumes. Arguments: a list of the root and the component's values. */}}
{{- define "distrain.fileVolumes" -}}
{{- $values := (index . 0).Values -}}
{{- if not $values.runs.url }}
- name: runs
  persistentVolumeClaim: {claimName: {{ include "distrain.runsClaim" (index . 0) }}}
{{- end }}
{{- with $values.data.existingClaim }}
- name: data
  persistentVolumeClaim: {claimName: {{ . }}, readOnly: true}
{{- end }}
{{- with (index . 1).extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "distrain.fileMounts" -}}
{{- $values := (index . 0).Values -}}
{{- if not $values.runs.url }}
- name: runs
  mountPath: {{ $values.runs.mountPath }}
  {{- with $values.runs.subPath }}
  subPath: {{ . }}
  {{- end }}
{{- end }}
{{- if $values.data.existingClaim }}
- {name: data, mountPath: {{ $values.data.mountPath }}, readOnly: true}
{{- end }}
{{- with (index . 1).extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}
