{{/* Names, labels, and the pod that all parts share. */}}

{{- define "headroom.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "headroom.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end -}}

{{/* Of (dict "root" $ "part" "web"). */}}
{{- define "headroom.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "headroom.labels" -}}
{{ include "headroom.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* What is the same in each pod: nobody is root. Of the root. */}}
{{- define "headroom.user" -}}
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* What is the same in each container: an image, and no rights. Of the root. */}}
{{- define "headroom.runs" -}}
image: {{ include "headroom.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* What is the same in each pod of the server. */}}
{{- define "headroom.pod" -}}
automountServiceAccountToken: false
{{ include "headroom.user" . }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {}
  - name: state
    emptyDir: {}
  # Empty at each start, as it has to be.
  - name: metrics
    emptyDir: {medium: Memory, sizeLimit: 128Mi}
  {{- with .Values.cold.existingClaim }}
  - name: cold
    persistentVolumeClaim: {claimName: {{ . | quote }}}
  {{- end }}
{{- end -}}

{{/* What is the same in each container of the server. */}}
{{- define "headroom.container" -}}
{{ include "headroom.runs" . }}
envFrom:
  - configMapRef: {name: {{ include "headroom.name" . }}}
  - secretRef: {name: {{ .Values.existingSecret | quote }}}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: state, mountPath: /var/lib/headroom}
  - {name: metrics, mountPath: /run/metrics}
  {{- if .Values.cold.existingClaim }}
  - {name: cold, mountPath: /var/lib/headroom/cold}
  {{- end }}
{{- end -}}

{{/* The names by which the server may be called. */}}
{{- define "headroom.hosts" -}}
{{ list .Values.settings.ALLOWED_HOSTS (ternary .Values.ingress.host "" .Values.ingress.enabled) | compact | join "," }}
{{- end -}}
