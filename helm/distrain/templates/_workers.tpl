{{/* Ports of a pod's workers: the comm of each, then the nanny's; with GPUs, nannies use free ports. */}}
{{- define "distrain.lastWorkerPort" -}}
{{- if .Values.workers.gpu.enabled -}}
{{ add 9009 .Values.workers.gpu.perPod }}
{{- else -}}
9001
{{- end -}}
{{- end -}}

{{- define "distrain.firstWorkerPort" -}}
{{ ternary 9010 9000 .Values.workers.gpu.enabled }}
{{- end -}}

{{- define "distrain.workerCommand" -}}
{{- $gpu := .Values.workers.gpu -}}
- dask
{{- if $gpu.enabled }}
- cuda
- worker
- {{ include "distrain.schedulerAddress" . }}
- --worker-port={{ include "distrain.firstWorkerPort" . }}:{{ include "distrain.lastWorkerPort" . }}
{{- else }}
- worker
- {{ include "distrain.schedulerAddress" . }}
- --nworkers=1
- --worker-port=9000
- --nanny-port=9001
{{- end }}
- --nthreads=1
# Workers' pages have neither TLS nor a token: they are only reachable in the pod, for the probe.
- --dashboard-address=127.0.0.1:9002
- --local-directory=/tmp/dask
- --death-timeout=300
{{- end -}}

{{/* The list of worker groups: component, and values like `workers`. The first is `workers` itself, the others are its pools. */}}
{{- define "distrain.workerGroups" -}}
{{- $base := omit .Values.workers "pools" -}}
{{- $groups := list (dict "component" "worker" "workers" $base) -}}
{{- range $name, $own := .Values.workers.pools -}}
{{- $merged := mergeOverwrite (deepCopy $base) $own -}}
{{- include "distrain.emptied" (list $merged $own) -}}
{{- $groups = append $groups (dict "component" (print "worker-" $name) "workers" $merged) -}}
{{- end -}}
{{- toJson $groups -}}
{{- end -}}

{{/* Clears values that a pool sets to empty; mergeOverwrite would keep the inherited keys. Arguments: a list of merged values and the pool's own. */}}
{{- define "distrain.emptied" -}}
{{- $merged := index . 0 -}}
{{- range $key, $own := index . 1 -}}
{{- if and (kindIs "map" $own) $own -}}
{{- include "distrain.emptied" (list (get $merged $key) $own) -}}
{{- else if kindIs "map" $own -}}
{{- $_ := set $merged $key dict -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "distrain.workerComponents" -}}
{{- $names := list -}}
{{- range include "distrain.workerGroups" . | fromJsonArray }}{{ $names = append $names .component }}{{ end -}}
{{- toJson $names -}}
{{- end -}}

{{/* Returns a root whose `workers` are a group's values. Arguments: a list of the root and the group. */}}
{{- define "distrain.workerPodOf" -}}
{{- $root := index . 0 -}}{{- $group := index . 1 -}}
{{- $values := merge (dict "workers" $group.workers) (omit $root.Values "workers") -}}
{{- include "distrain.workerPod" (dict "Values" $values "Release" $root.Release "Chart" $root.Chart "component" $group.component) -}}
{{- end -}}

{{/* The workers' pod, of a StatefulSet or of a DaskCluster. */}}
{{- define "distrain.workerPod" -}}
{{- $part := .Values.workers -}}
{{- $tolerated := dict "tolerations" (append $part.tolerations (dict "key" $part.gpu.resourceName "operator" "Exists" "effect" "NoSchedule") | uniq) -}}
{{- $gpus := ternary (dict $part.gpu.resourceName ($part.gpu.perPod | toString)) dict $part.gpu.enabled -}}
serviceAccountName: {{ include "distrain.fullname" . }}-worker
automountServiceAccountToken: false
enableServiceLinks: false
{{- with and $part.gpu.enabled $part.gpu.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- if $part.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- include "distrain.podBasics" (dict "root" . "component" (.component | default "worker") "part" (ternary (merge (dict) $tolerated $part) $part $part.gpu.enabled)) }}
{{ include "distrain.podSecurity" (dict "root" . "part" $part "localPorts" true) }}
containers:
  - name: worker
    image: {{ include "distrain.workerImage" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    command: [tini, --]
    args: {{- include "distrain.workerCommand" . | nindent 6 }}
    env:
      - {name: HOME, value: /tmp}
      {{- if not $part.gpu.enabled }}
      # As in the service's pods.
      - {name: NVIDIA_VISIBLE_DEVICES, value: void}
      {{- end }}
      # The Dask operator would use an address without TLS.
      - {name: DASK_SCHEDULER_ADDRESS, value: {{ include "distrain.schedulerAddress" . | quote }}}
      {{- include "distrain.commEnv" (list . "worker") | trim | nindent 6 }}
      {{- with .Values.network.interface }}
      - {name: DISTRAIN_INTERFACE, value: {{ . | quote }}}
      {{- end }}
      {{- with .Values.cluster.modelPackages }}
      - {name: DISTRAIN_MODEL_PACKAGES, value: {{ join "," . | quote }}}
      {{- end }}
      {{- include "distrain.ownEnv" $part | trim | nindent 6 }}
    {{- include "distrain.envFrom" $part | nindent 4 }}
    ports:
      - {name: comm, containerPort: {{ include "distrain.firstWorkerPort" . }}, protocol: TCP}
    {{- $health := dict "command" (list "python" "-c" "import http.client as h; c = h.HTTPConnection('127.0.0.1', 9002, timeout=9); c.request('GET', '/health'); assert c.getresponse().status == 200") }}
    startupProbe:
      exec: {{- toYaml $health | nindent 8 }}
      periodSeconds: 10
      timeoutSeconds: 10
      failureThreshold: 60
    # Killing it kills a rank, so only a worker that hangs for minutes is killed.
    livenessProbe:
      exec: {{- toYaml $health | nindent 8 }}
      periodSeconds: 60
      timeoutSeconds: 10
      failureThreshold: 5
    resources:
      requests: {{- merge (dict) $gpus $part.resources.requests | toYaml | nindent 8 }}
      limits: {{- merge (dict) $gpus $part.resources.limits | toYaml | nindent 8 }}
    {{- include "distrain.containerSecurity" $part | nindent 4 }}
    volumeMounts:
      - {name: scratch, mountPath: /tmp}
      - {name: shm, mountPath: /dev/shm}
      {{- include "distrain.tlsMount" . | trim | nindent 6 }}
      {{- include "distrain.fileMounts" (list . $part) | trim | nindent 6 }}
volumes:
  - name: scratch
    {{- if $part.scratch.storageClass }}
    ephemeral:
      volumeClaimTemplate:
        spec:
          accessModes: [ReadWriteOnce]
          storageClassName: {{ $part.scratch.storageClass }}
          resources: {requests: {storage: {{ $part.scratch.size }}}}
    {{- else }}
    emptyDir: {sizeLimit: {{ $part.scratch.size }}}
    {{- end }}
  - name: shm
    emptyDir: {medium: Memory, sizeLimit: {{ $part.shmSize }}}
  {{- include "distrain.tlsVolume" (list . "worker") | trim | nindent 2 }}
  {{- include "distrain.fileVolumes" (list . $part) | trim | nindent 2 }}
{{- end -}}
