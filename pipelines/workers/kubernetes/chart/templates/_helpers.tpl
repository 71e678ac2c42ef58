{{- define "forebay.labels" -}}
app.kubernetes.io/name: forebay
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "forebay.security" -}}
--token-file=/credentials/token --tls-ca=/credentials/ca.pem --tls-cert=/credentials/cert.pem --tls-key=/credentials/key.pem
{{- end }}

{{- define "forebay.worker" -}}
forebay worker --listen=0.0.0.0:7400 --threads={{ .Values.threads }} --memory={{ .Values.memory }} {{ include "forebay.security" . }}
{{- end }}

{{- define "forebay.pod" -}}
# At SIGTERM a worker ends the span that it is in, and hands back the rest; within ten seconds in any case.
terminationGracePeriodSeconds: 20
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "forebay.container" -}}
image: {{ .Values.image | quote }}
ports: [{ containerPort: 7400 }]
{{- with .Values.storageSecrets }}
envFrom:
  {{- range . }}
  - secretRef: { name: {{ . | quote }} }
  {{- end }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
resources: {{- toYaml .Values.resources | nindent 2 }}
{{- end }}

{{- define "forebay.volumes" -}}
- name: credentials
  secret: { secretName: {{ .Values.credentialsSecret | quote }}, defaultMode: 0440 }
- name: scratch
  emptyDir: { sizeLimit: {{ .Values.scratch | quote }} }
{{- end }}
