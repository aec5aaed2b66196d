{{/* The host names in a role's certificate. Arguments: a list of the root and the role. */}}
{{- define "distrain.certificateNames" -}}
{{- $root := index . 0 -}}
{{- $name := printf "%s-%s" (include "distrain.fullname" $root) (ternary "api" (index . 1) (eq (index . 1) "service")) -}}
{{- $space := $root.Release.Namespace -}}
{{- $names := list $name (printf "%s.%s" $name $space) (printf "%s.%s.svc" $name $space) (printf "%s.%s.svc.cluster.local" $name $space) -}}
{{- if eq (index . 1) "service" -}}
{{- $names = concat $names (list "localhost") $root.Values.tls.apiNames $root.Values.ingress.hosts -}}
{{- end -}}
{{- toJson (uniq $names) -}}
{{- end -}}

{{- define "distrain.roles" -}}
{{- ternary (list "service") (list "scheduler" "worker" "service") (eq .Values.mode "external") | toJson -}}
{{- end -}}
