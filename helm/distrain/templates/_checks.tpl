{{/* What a schema cannot say: values that exclude each other. */}}
{{- define "distrain.checks" -}}
{{- $values := .Values -}}
{{- if and (not $values.service.database.existingSecret) (gt (int $values.service.replicas) 1) -}}
{{- fail "service.replicas: several pods need PostgreSQL: name a Secret with its URL as service.database.existingSecret" -}}
{{- end -}}
{{- if and (not $values.service.database.existingSecret) (gt (int $values.service.reconcilers) 1) -}}
{{- fail "service.reconcilers: several pods need PostgreSQL: name a Secret with its URL as service.database.existingSecret" -}}
{{- end -}}
{{- if and (eq $values.mode "external") (not $values.clusters) -}}
{{- fail "clusters: mode external has no cluster of its own: name one at least" -}}
{{- end -}}
{{- if and (ne $values.mode "external") (hasKey $values.clusters $values.cluster.name) -}}
{{- fail (printf "clusters.%s: the chart's own cluster has that name (cluster.name)" $values.cluster.name) -}}
{{- end -}}
{{- if and $values.ingress.enabled (not $values.ingress.hosts) -}}
{{- fail "ingress.hosts: name one host at least" -}}
{{- end -}}
{{- range $range := list "rendezvousPorts" "localPorts" -}}
{{- $ports := index $values.network $range -}}
{{- if gt (int $ports.first) (int $ports.last) -}}
{{- fail (printf "network.%s: first is larger than last" $range) -}}
{{- end -}}
{{- end -}}
{{- $stores := $values.network.rendezvousPorts -}}
{{- $local := $values.network.localPorts -}}
{{- if and $local.set (le (int $stores.first) (int $local.last)) (ge (int $stores.last) (int $local.first)) -}}
{{- fail "network.rendezvousPorts: they overlap network.localPorts, so that the kernel may give one of them away" -}}
{{- end -}}
{{- if and (ne $values.mode "external") (gt (int $values.workers.autoscale.min) (int $values.workers.autoscale.max)) -}}
{{- fail "workers.autoscale: min is larger than max" -}}
{{- end -}}
{{- end -}}
