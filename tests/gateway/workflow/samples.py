"""One file that uses every declaration and every property of the language."""

EVERYTHING = r"""## Everything, once.
vars:
  place: string = "${PROJECT_DIR}"   ## a comment behind a value
  count: int = 3
  share: float = 0.5
  careful: bool = true
  settings: json = {"a": [1, null, {"b": "c"}], "d": -1.5}
  names: string[] = ["x",
    "y",
  ]
  given: string

presets:
  quick:
    count: 1
    careful: false

attachments:
  brief: file
    description: "What to do"
    accept_mime: ["text/plain", "text/markdown"]
    required: true
  sketch: image

prompt system_text:
  You are careful.
    Indented more: {{vars.place}}

  ## not a comment
  {{attachments.brief.mime}} {{run.id}} {{loop.again.iteration}}

prompt ask:
  {{input.question}}

schema verdict:
  approved: bool
  score: float
  why: string [enum: "good", "bad"]
  issues: string[]
  raw: json

cursor tone:
  description: "How to say it"
  bands:
    "0.0-0.5": "calm"
    0.5..1: "loud"

cursor style:
  values:
    short: "Be brief."
    long: "Take your time."

mcp_server files:
  transport: stdio
  command: "files-server"
  args: ["--root", "/workspace"]

mcp_server remote:
  transport: http
  url: "https://mcp.example.com"
  auth:
    type: "oauth2"
    auth_url: "https://a.example.com"
    token_url: "https://b.example.com"
    revoke_url: "https://c.example.com"
    client_id: "me"
    scopes: ["read"]

agent writer:
  model: "${MODEL}"
  backend: claude_code
  provider: "anthropic"
  input: verdict
  output: verdict
  publish: report
  system: system_text
  user: ask
  session: inherit_if_available
  tools: [git_diff, "read file", mcp.files, remote.*]
  tool_policy: [allow_all]
  capabilities: [board.read, board.create]
  tool_max_steps: 8
  max_tokens: 4000
  reasoning_effort: high
  readonly: false
  interaction: llm_or_human
  interaction_prompt: ask
  interaction_model: "small"
  await: best_effort
  sandbox:
    network:
      inherit: replace
      mode: allowlist
      rules: ["docs.example.com"]
  mcp:
    inherit: true
    servers: [files]
    disable: [remote]
  compaction:
    threshold: 0.8
    preserve_recent: 4
  memory:
    enabled: true
    scope: "project"
    autoload: ["notes.md"]
    read: true
    write: false
    pre_compact_inject: true
  cursors:
    enabled: true
    tone: 0.7
    style: short

judge critic:
  model: "m"
  output: verdict
  reasoning_effort: "${EFFORT}"
  session: artifacts_only

router spread:
  mode: fan_out_all

router pick:
  mode: llm
  model: "m"
  backend: "claw"
  provider: "p"
  system: system_text
  user: ask
  multi: true
  reasoning_effort: low

human approve:
  input: verdict
  output: verdict
  publish: decision
  instructions: ask
  interaction: human
  interaction_prompt: ask
  interaction_model: "m"
  model: "m"
  system: system_text
  min_answers: 2
  await: wait_all

tool test:
  command: |
    make test | tee log
    echo '{"ok": true}'
  input: verdict
  output: verdict
  await: wait_all
  sandbox: auto

tool script:
  language: py
  script: `
print({{input.x}}, "{not a template}")
`

compute sums:
  input: verdict
  output: verdict
  expr:
    total: "length(input.issues) + vars.count * 2"
    label: "if(outputs.critic.approved, 'yes', join(vars.names, \", \"))"

workflow everything:
  vars:
    extra: int = 1
  attachments:
    log: file
  entry: writer
  default_backend: "claude_code"
  tool_policy: [ask]
  capabilities: [board.move]
  worktree: auto
  interaction: human
  mcp:
    autoload_project: true
  compaction:
    threshold: 0.9
  budget:
    max_parallel_branches: 4
    max_duration: "1h30m"
    max_cost_usd: 12.5
    max_tokens: 100000
    max_iterations: 20
  sandbox:
    # a single hash is a comment too
    mode: inline
    build:
      dockerfile: "Dockerfile"
      context: "."
      args:
        VERSION: "1.2.3"
    user: "1000:1000"
    workspace_folder: "/workspace"
    host_state: none
    post_create: "npm ci"
    env:
      NODE_ENV: test
      RETRIES: 3
    mounts: ["type=bind,source=${localEnv:HOME}/.cache,target=/cache"]
    secrets:
      TOKEN:
        env: GITHUB_TOKEN
        hosts: ["api.github.com"]
    cpus: 1.5
    memory: "2g"
    pids: 256
    network:
      mode: allowlist
      preset: iterion-default
      inherit: merge
      rules: ["api.github.com", "!evil.site"]
      enforcement: enforced
      tls: inspect
      inspect_hosts: ["api.github.com"]
      exclude_hosts: ["pinned.example.com"]
      hosts:
        "db.internal": ["10.0.0.5"]
      http:
        methods: ["GET", POST]
        paths: {"/a": true}
  writer -> critic
  critic -> spread when approved
  critic -> writer when not approved as again(3) with { question: "{{outputs.critic.why}}", n: "x" }
  spread -> test
  spread -> script with {
    x: "{{outputs.writer}}"
    y: "text",
  }
  spread -> pick
  pick -> approve
  pick -> sums
  test -> sums when "outputs.test.score > 0.5 && length(input.items) >= 2"
  test -> fail
  script -> done
  approve -> done
  sums -> done
"""
