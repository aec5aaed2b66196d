{{/* Checks that a schema cannot express: values that exclude each other. */}}
{{- define "distrain.checks" -}}
{{- $values := .Values -}}
{{- if and (not $values.service.database.existingSecret) (gt (int $values.service.replicas) 1) -}}
{{- fail "service.replicas: several pods need PostgreSQL: set service.database.existingSecret to a Secret with its URL" -}}
{{- end -}}
{{- if and (not $values.service.database.existingSecret) (gt (int $values.service.reconcilers) 1) -}}
{{- fail "service.reconcilers: several pods need PostgreSQL: set service.database.existingSecret to a Secret with its URL" -}}
{{- end -}}
{{- if and (eq $values.mode "external") (not $values.clusters) -}}
{{- fail "clusters: mode external has no cluster of its own: set at least one" -}}
{{- end -}}
{{- if and (ne $values.mode "external") (hasKey $values.clusters $values.cluster.name) -}}
{{- fail (printf "clusters.%s: the chart's own cluster has that name (cluster.name)" $values.cluster.name) -}}
{{- end -}}
{{- if and $values.ingress.enabled (not $values.ingress.hosts) -}}
{{- fail "ingress.hosts: set at least one host" -}}
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
{{- fail "network.rendezvousPorts: they overlap network.localPorts, so the kernel may assign one of them to another process" -}}
{{- end -}}
{{- if and (ne $values.mode "external") (gt (int $values.workers.autoscale.min) (int $values.workers.autoscale.max)) -}}
{{- fail "workers.autoscale: min is larger than max" -}}
{{- end -}}
{{- if and (ne $values.mode "external") $values.workers.autoscale.enabled (or $values.workers.pools (and $values.workers.gpu.enabled (gt (int $values.workers.gpu.perPod) 1))) -}}
{{- fail "workers.autoscale: a rank is counted as a pod: set workers.gpu.perPod to 1, without workers.pools" -}}
{{- end -}}
{{- if and $values.workers.pools (ne $values.mode "standalone") -}}
{{- fail "workers.pools: they need mode standalone; the Dask operator's cluster has one group of workers" -}}
{{- end -}}
{{- if and $values.runs.url $values.runs.existingClaim -}}
{{- fail "runs.url: run folders are there or in runs.existingClaim, not in both" -}}
{{- end -}}
{{- range $group := include "distrain.workerGroups" . | fromJsonArray -}}
{{- $at := eq $group.component "worker" | ternary "workers" (printf "workers.pools.%s" (trimPrefix "worker-" $group.component)) -}}
{{- $name := printf "%s-%s" (include "distrain.fullname" $) $group.component -}}
{{- if gt (len $name) 52 -}}
{{- fail (printf "%s: its StatefulSet would be %s, %d characters; the limit is 52, since its pods' label adds a hash: use a shorter name or fullnameOverride" $at $name (len $name)) -}}
{{- end -}}
{{- include "distrain.workerChecks" (list $values $at $group.workers) -}}
{{- end -}}
{{- end -}}

{{/* Checks one group of workers. Arguments: a list of all values, the group's path in them, its values. */}}
{{- define "distrain.workerChecks" -}}
{{- $values := index . 0 -}}{{- $at := index . 1 -}}{{- $workers := index . 2 -}}
{{- $memory := dig "limits" "memory" "" $workers.resources -}}
{{- if and $memory (ge (float64 (include "distrain.bytes" $workers.shmSize)) (float64 (include "distrain.bytes" $memory))) -}}
{{- fail (printf "%s.shmSize: %v of /dev/shm count as memory, and a pod has %v (%s.resources.limits.memory)" $at $workers.shmSize $memory $at) -}}
{{- end -}}
{{- if and $workers.gpu.enabled (contains "/mig-" $workers.gpu.resourceName) (gt (int $workers.gpu.perPod) 1) -}}
{{- fail (printf "%s.gpu.perPod: a process sees only one MIG slice, so %d of %s would be one worker: set perPod to 1 and raise %s.replicas" $at (int $workers.gpu.perPod) $workers.gpu.resourceName $at) -}}
{{- end -}}
{{- if and $workers.gpu.enabled (hasKey (merge (dict) $workers.resources.limits $workers.resources.requests) $workers.gpu.resourceName) -}}
{{- fail (printf "%s.resources: %s is set by %s.gpu.perPod, since the numbers of workers and GPUs must be equal" $at $workers.gpu.resourceName $at) -}}
{{- end -}}
{{- if and $workers.hostNetwork $values.networkPolicy.enabled (not (contains "ipBlock" (toJson $values.networkPolicy.commFrom))) -}}
{{- fail (printf "%s.hostNetwork: NetworkPolicies cannot select pods in the nodes' network, so scheduler and other workers would reject them: add the nodes' addresses to networkPolicy.commFrom, as ipBlock" $at) -}}
{{- end -}}
{{- end -}}

{{/* Converts a quantity such as 2Gi to bytes. */}}
{{- define "distrain.bytes" -}}
{{- $unit := regexFind "[A-Za-z]*$" (toString .) -}}
{{- $sizes := dict "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- mulf (float64 (trimSuffix $unit (toString .))) (float64 (get $sizes $unit | default 1)) -}}
{{- end -}}
