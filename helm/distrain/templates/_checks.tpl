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
{{- $memory := dig "limits" "memory" "" $values.workers.resources -}}
{{- if and $memory (ge (float64 (include "distrain.bytes" $values.workers.shmSize)) (float64 (include "distrain.bytes" $memory))) -}}
{{- fail (printf "workers.shmSize: %v of /dev/shm count as memory, of which a pod has %v (workers.resources.limits.memory)" $values.workers.shmSize $memory) -}}
{{- end -}}
{{- end -}}

{{/* The bytes of a quantity, such as 2Gi. */}}
{{- define "distrain.bytes" -}}
{{- $unit := regexFind "[A-Za-z]*$" (toString .) -}}
{{- $sizes := dict "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- mulf (float64 (trimSuffix $unit (toString .))) (float64 (get $sizes $unit | default 1)) -}}
{{- end -}}
