# SPDX-License-Identifier: Apache-2.0
# For scripts that need a daemon of their own and clients from the registries; to be sourced.

has_node() { [ "$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)" -ge "$1" ]; }

# npm_packages NAME: those of the package.json here, NAME being one of them. Fails when the registry cannot be reached.
npm_packages() { [ -d "node_modules/$1" ] || npm ci --no-audit --no-fund --silent; }

# python_packages DIRECTORY: those of the requirements.txt here. Fails when the index cannot be reached.
python_packages() {
  cmp -s requirements.txt "$1/requirements.txt" && return
  rm -rf "$1"
  /usr/bin/python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$1" -r requirements.txt && cp requirements.txt "$1/"
}

# start_daemon PROGRAM TEMPLATES: until the script's end. Sets data_dir, and exports GLOVEBOX_URL and GLOVEBOX_ADMIN_KEY.
start_daemon() {
  data_dir=$(mktemp -d)
  # Its own templates, so that what a suite builds is nobody else's: the same files, under other names.
  mkdir "$data_dir/templates"
  cp -al "$2/versions" "$2/names" "$data_dir/templates/" 2>/dev/null || cp -a "$2/versions" "$2/names" "$data_dir/templates/"
  "$1" --data-dir "$data_dir" up --listen 127.0.0.1:0 --end-sandboxes >"$data_dir/log" 2>&1 &
  daemon=$!
  trap stop_daemon EXIT
  for _ in $(seq 1200); do
    [ -s "$data_dir/daemon.json" ] && break
    kill -0 "$daemon" 2>/dev/null || { cat "$data_dir/log" >&2; exit 1; }
    sleep 0.1
  done
  GLOVEBOX_URL=$(/usr/bin/python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["url"])' "$data_dir/daemon.json")
  GLOVEBOX_ADMIN_KEY=$(cat "$data_dir/admin.key")
  export GLOVEBOX_URL GLOVEBOX_ADMIN_KEY
}

stop_daemon() {
  kill "$daemon" 2>/dev/null && wait "$daemon" || true
  rm -rf "$data_dir"
}
