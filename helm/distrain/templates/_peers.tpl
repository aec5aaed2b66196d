{{/* Peers of network policies. Arguments of the first: a list of the root and the components. */}}
{{- define "distrain.peer" -}}
- podSelector:
    matchLabels: {{- include "distrain.releaseLabels" (index . 0) | nindent 6 }}
    matchExpressions:
      - {key: app.kubernetes.io/component, operator: In, values: {{ toJson (index . 1) }}}
{{- end -}}

{{/* Nodes with workers in their network, which pod selectors do not match. */}}
{{- define "distrain.nodePeers" -}}
{{- if contains "\"hostNetwork\":true" (include "distrain.workerGroups" .) }}
{{- range .Values.networkPolicy.commFrom }}
{{- if .ipBlock }}
- {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "distrain.prometheusPeer" -}}
- namespaceSelector:
    matchLabels: {kubernetes.io/metadata.name: {{ .Values.monitoring.prometheus.namespace }}}
  podSelector:
    matchLabels: {{- toYaml .Values.monitoring.prometheus.podLabels | nindent 6 }}
{{- end -}}

{{- define "distrain.namespacePeer" -}}
- namespaceSelector:
    matchLabels: {kubernetes.io/metadata.name: {{ . }}}
{{- end -}}

{{/* The `ports` of a rule. Arguments: a list of single ports and pairs. */}}
{{- define "distrain.ports" -}}
{{- range . }}
{{- if kindIs "slice" . }}
- {protocol: TCP, port: {{ index . 0 }}, endPort: {{ index . 1 }}}
{{- else }}
- {protocol: TCP, port: {{ . }}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "distrain.dnsEgress" -}}
- to: {{- include "distrain.namespacePeer" .Values.networkPolicy.egress.dnsNamespace | nindent 4 }}
  ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end -}}
