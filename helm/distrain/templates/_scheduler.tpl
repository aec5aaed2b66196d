{{/* The scheduler's pod, of a Deployment or of a DaskCluster. */}}
{{- define "distrain.schedulerPod" -}}
{{- $part := .Values.scheduler -}}
serviceAccountName: {{ include "distrain.fullname" . }}-scheduler
automountServiceAccountToken: false
enableServiceLinks: false
{{- include "distrain.podBasics" (dict "root" . "component" "scheduler" "part" $part) }}
{{ include "distrain.podSecurity" (dict "root" . "part" $part "localPorts" true) }}
containers:
  - name: scheduler
    image: {{ include "distrain.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    command: [tini, --]
    args:
      - dask
      - scheduler
      - --protocol={{ ternary "tls" "tcp" .Values.tls.enabled }}
      - --port=8786
      - --dashboard-address=:8787
      - --preload=distrain.preload
    env:
      - {name: HOME, value: /tmp}
      # As in the service's pods.
      - {name: NVIDIA_VISIBLE_DEVICES, value: void}
      - {name: DISTRAIN_RENDEZVOUS_PORTS, value: {{ printf "%d-%d" (int .Values.network.rendezvousPorts.first) (int .Values.network.rendezvousPorts.last) | quote }}}
      - name: DISTRAIN_DASHBOARD_TOKEN
        valueFrom: {secretKeyRef: {name: {{ include "distrain.tokenSecret" . }}, key: token}}
      {{- include "distrain.commEnv" (list . "scheduler") | trim | nindent 6 }}
      {{- if .Values.tls.enabled }}
      - {name: DASK_DISTRIBUTED__SCHEDULER__DASHBOARD__TLS__CERT, value: /etc/distrain/tls/scheduler.pem}
      - {name: DASK_DISTRIBUTED__SCHEDULER__DASHBOARD__TLS__KEY, value: /etc/distrain/tls/scheduler-key.pem}
      {{- end }}
      {{- with .Values.cluster.modelPackages }}
      - {name: DISTRAIN_MODEL_PACKAGES, value: {{ join "," . | quote }}}
      {{- end }}
      {{- include "distrain.ownEnv" $part | trim | nindent 6 }}
    {{- include "distrain.envFrom" $part | nindent 4 }}
    ports:
      - {name: tcp-comm, containerPort: 8786, protocol: TCP}
      - {name: http-dashboard, containerPort: 8787, protocol: TCP}
    {{- $health := dict "path" "/health" "port" "http-dashboard" "scheme" (ternary "HTTPS" "HTTP" .Values.tls.enabled) }}
    startupProbe:
      httpGet: {{- toYaml $health | nindent 8 }}
      periodSeconds: 5
      failureThreshold: 60
    readinessProbe:
      httpGet: {{- toYaml $health | nindent 8 }}
      periodSeconds: 10
      timeoutSeconds: 5
    # Killing it restarts all jobs, so only a scheduler that hangs for minutes is killed.
    livenessProbe:
      httpGet: {{- toYaml $health | nindent 8 }}
      periodSeconds: 20
      timeoutSeconds: 10
      failureThreshold: 9
    resources: {{- toYaml $part.resources | nindent 6 }}
    {{- include "distrain.containerSecurity" $part | nindent 4 }}
    volumeMounts:
      - {name: tmp, mountPath: /tmp}
      {{- include "distrain.tlsMount" . | trim | nindent 6 }}
      {{- include "distrain.fileMounts" (list . $part) | trim | nindent 6 }}
volumes:
  - name: tmp
    emptyDir: {sizeLimit: 2Gi}
  {{- include "distrain.tlsVolume" (list . "scheduler") | trim | nindent 2 }}
  {{- include "distrain.fileVolumes" (list . $part) | trim | nindent 2 }}
{{- end -}}

{{/* Headless, so that ranks can reach the stores on the pod's other ports. */}}
{{- define "distrain.schedulerServiceSpec" -}}
type: ClusterIP
clusterIP: None
selector: {{- include "distrain.selector" (list . "scheduler") | nindent 2 }}
ports:
  - {name: tcp-comm, port: 8786, targetPort: tcp-comm, protocol: TCP, appProtocol: {{ ternary "tls" "tcp" .Values.tls.enabled }}}
  - {name: http-dashboard, port: 8787, targetPort: http-dashboard, protocol: TCP, appProtocol: {{ ternary "https" "http" .Values.tls.enabled }}}
{{- end -}}
