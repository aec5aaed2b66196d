{{/* What all pods have in common. Arguments: a dict of root, component, part (its values). */}}
{{- define "distrain.podBasics" -}}
{{- $root := .root -}}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
terminationGracePeriodSeconds: {{ .part.terminationGracePeriodSeconds }}
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

{{/* Arguments: a dict of root, localPorts (whether ranks' ports are taken there). */}}
{{- define "distrain.podSecurity" -}}
{{- $pod := .root.Values.podSecurity -}}
{{- $ports := .root.Values.network.localPorts -}}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ $pod.runAsUser }}
  runAsGroup: {{ $pod.runAsGroup }}
  fsGroup: {{ $pod.fsGroup }}
  # At every start anew it would open the service's private folder to the group.
  fsGroupChangePolicy: OnRootMismatch
  {{- with $pod.supplementalGroups }}
  supplementalGroups: {{- toYaml . | nindent 4 }}
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
  {{- if and .localPorts $ports.set }}
  sysctls:
    - name: net.ipv4.ip_local_port_range
      value: {{ printf "%d %d" (int $ports.first) (int $ports.last) | quote }}
  {{- end }}
{{- end -}}

{{- define "distrain.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  privileged: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Arguments: a list of the root, the component and its values. */}}
{{- define "distrain.podMetadata" -}}
{{- $root := index . 0 -}}{{- $component := index . 1 -}}{{- $part := index . 2 -}}
{{- $annotations := deepCopy $part.podAnnotations -}}
{{- if has $component (list "service" "api" "reconciler") -}}
{{- $_ := set $annotations "checksum/serve.yaml" (include "distrain.serveYaml" $root | sha256sum) -}}
{{- if and $root.Values.tls.enabled (ne $root.Values.tls.source "existing") -}}
{{- /* Of other names there is another certificate, which is read at the start alone. */ -}}
{{- $_ := set $annotations "checksum/names" (include "distrain.certificateNames" (list $root "service") | sha256sum) -}}
{{- end -}}
{{- end -}}
labels:
  {{- include "distrain.selector" (list $root $component) | nindent 2 }}
  {{- if has $component (list "service" "api") }}
  distrain-api: "true"
  {{- end }}
  {{- with omit $part.podLabels "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "distrain-api" }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Variables of a component's values, as a list. */}}
{{- define "distrain.ownEnv" -}}
{{- range $name, $value := .env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}

{{- define "distrain.envFrom" -}}
{{- with .envFromSecrets }}
envFrom:
  {{- range . }}
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

{{/* Run directories and data, the same in all pods. */}}
{{- define "distrain.fileVolumes" -}}
- name: runs
  persistentVolumeClaim: {claimName: {{ include "distrain.runsClaim" . }}}
{{- with .Values.data.existingClaim }}
- name: data
  persistentVolumeClaim: {claimName: {{ . }}, readOnly: true}
{{- end }}
{{- end -}}

{{- define "distrain.fileMounts" -}}
- name: runs
  mountPath: {{ .Values.runs.mountPath }}
  {{- with .Values.runs.subPath }}
  subPath: {{ . }}
  {{- end }}
{{- if .Values.data.existingClaim }}
- {name: data, mountPath: {{ .Values.data.mountPath }}, readOnly: true}
{{- end }}
{{- end -}}
