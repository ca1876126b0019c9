#!/bin/sh
# gpushim launcher: the OCI runtime that the engine executes. It becomes the low-level runtime at
# once, by exec, unless the command may need a change of the container's spec; Python starts only
# for those. An engine runs it five to seven times in a container's life, so each line here is paid
# for by every container: what most calls need comes first, and nothing starts a process unasked.
# `gpushimctl install` fills in the words between @ signs. Names begin with an underscore because a
# variable of the caller's that had the same name would reach the low-level runtime altered.
_root=@ROOT@
_python=@PYTHON@
_code=@CODE@
_refresh_python=@REFRESH_PYTHON@
_containers=@CONTAINERS@
_settings=@SETTINGS@
_config=@CONFIG@

# The settings hold what the launcher needs of the configuration. They carry the configuration's
# time stamp, so an edited, replaced or restored file is noticed by the next call. `command` keeps a
# damaged file from ending the shell, and so every call of the runtime.
read_settings() {
    low_level=@LOW_LEVEL@ low_level_family=@LOW_LEVEL_FAMILY@ other_low_level=@OTHER_LOW_LEVEL@
    # The file has these only where they are others: Docker's data root, where its records are, and
    # whether they count; further words that start Python, one a line; and the values of
    # NVIDIA_VISIBLE_DEVICES that ask for nothing, as a regular expression.
    _docker=/var/lib/docker
    _docker_records=: _triggers='' _no_request='(void)?'
    # shellcheck disable=SC1090 # The file is written by gpushim.launcher_settings.
    [ ! -f "$_settings" ] || command . "$_settings" 2>/dev/null
}
read_settings
# shellcheck disable=SC3013 # dash, bash, busybox and ksh all compare times; POSIX does since 2024.
if [ "$_config" -nt "$_settings" ] || { [ "$_config" -ot "$_settings" ] && [ -f "$_config" ]; }; then
    "$_refresh_python" -I -m gpushim.launcher_settings --root "$_root" </dev/null >/dev/null 2>&1
    read_settings
fi
case $low_level_family:$low_level in
runc:/* | crun:/*) ;;
*) low_level=@LOW_LEVEL@ low_level_family=@LOW_LEVEL_FAMILY@ other_low_level=@OTHER_LOW_LEVEL@ ;;
esac

# What engines ask for again and again, as Docker and containerd write it; the rest of this script
# would come to the same, for a fifth of a millisecond more.
# shellcheck disable=SC3013 # -ef is there wherever -nt is.
if [ -f "$low_level" ] && [ -x "$low_level" ] && [ ! "$low_level" -ef "$0" ]; then
    _usable=:
    case $1:$3:$5:$7 in
    --version:* | -v:* | --help:* | -h:* | features:*) exec "$low_level" "$@" ;;
    --root:--log:--log-format:state | --root:--log:--log-format:start | \
        --root:--log:--log-format:kill | --root:--log:--log-format:delete)
        case $low_level_family in
        crun) _own=status ;;
        *) _own=state.json ;;
        esac
        # The id comes next, or behind one option. It is this runtime's container.
        if [ -e "$2/$8/$_own" ] || [ -e "$2/$9/$_own" ]; then exec "$low_level" "$@"; fi
        ;;
    esac
else
    _usable=''
fi

# runc's grammar; gpushim.oci.invocation has the same in Python, and a test holds both to the help
# texts of runc and crun. An option that is in no list takes no value, so it swallows no command.
_command='' _container='' _bundle=. _spec=config.json _process=''
_state_root='' _log='' _log_format=''
_wants='' _ended=''
case $#:$1:$3:$5:$7:$8:${10}:${12} in
12:--root:--log:--log-format:create:--bundle:--pid-file:[!-]*)
    # As Docker and containerd write it, it needs no look at each word.
    _state_root=$2 _log=$4 _log_format=$6 _command=$7 _bundle=${9:-.} _container=${12} _known=:
    ;;
*) _known='' ;;
esac
for _argument; do
    [ "$_known" ] && break
    if [ "$_wants" ]; then
        _option=$_wants _value=$_argument _wants=''
    else
        case $_ended$_argument in
        --)
            _ended=:
            continue
            ;;
        -?*)
            _option=${_argument#-}
            _option=${_option#-}
            case $_option in
            b/*) # crun's getopt takes a value that is joined to its letter.
                _value=${_option#b}
                _option=b
                ;;
            *=*)
                _value=${_option#*=}
                _option=${_option%%=*}
                ;;
            *)
                _value=''
                case $_command:$_option in
                :root | :log | :log-format | :criu | :rootless | :cgroup-manager | \
                    create:b | create:bundle | create:f | create:config | create:console-socket | \
                    create:pid-file | create:pidfd-socket | create:preserve-fds | \
                    run:b | run:bundle | run:f | run:config | run:console-socket | \
                    run:pid-file | run:pidfd-socket | run:preserve-fds | \
                    restore:b | restore:bundle | restore:console-socket | restore:empty-ns | \
                    restore:image-path | restore:lsm-mount-context | restore:lsm-profile | \
                    restore:manage-cgroups-mode | restore:pid-file | restore:work-path | \
                    exec:p | exec:process | exec:additional-gids | exec:apparmor | exec:c | \
                    exec:cap | exec:cgroup | exec:console-socket | exec:cwd | exec:e | exec:env | \
                    exec:g | exec:pid-file | exec:pidfd-socket | exec:preserve-fds | \
                    exec:process-label | exec:u | exec:user)
                    _wants=$_option
                    continue
                    ;;
                esac
                ;;
            esac
            ;;
        *)
            if [ -z "$_command" ]; then
                _command=$_argument _ended=''
                case $_command in
                create | run | restore | exec) continue ;;
                esac
                break
            fi
            _container=${_container:-$_argument}
            [ "$_command" = exec ] && break
            continue
            ;;
        esac
    fi
    case $_option in
    b | bundle) _bundle=${_value:-.} ;;
    f | config) _spec=$_value ;;
    p | process) _process=$_value ;;
    root) _state_root=$_value ;;
    log) _log=$_value ;;
    log-format) _log_format=$_value ;;
    esac
done

# An error of the launcher's own, where an engine looks for it: in the log that it asked for.
fail() {
    if [ "$_log" ]; then
        PATH=${PATH:+$PATH:}/usr/bin:/bin # An engine may give none at all.
        _time=$(date -u +%Y-%m-%dT%H:%M:%SZ)
        _text=$(printf 'gpushim: %s' "$1" | sed 's/[\\"]/\\&/g')
        if [ "$_log_format" = json ]; then
            printf '{"level":"error","msg":"%s","time":"%s"}\n' "$_text" "$_time" >>"$_log"
        else
            printf 'time="%s" level=error msg="%s"\n' "$_time" "$_text" >>"$_log"
        fi
    fi
    printf 'gpushim: %s\n' "$1" >&2
    exit 1
}

# Both low-level runtimes may be here, and a container belongs to the one that created it.
if [ "$other_low_level" ]; then
    case $_command in
    '' | create | run | restore | features | list | spec) ;;
    *)
        case $low_level_family in
        runc) _own=state.json _other=status ;;
        *) _own=status _other=state.json ;;
        esac
        _other_root=$_state_root
        [ "$_other_root" ] || case $low_level_family:${XDG_RUNTIME_DIR:+set} in
        runc:set) _other_root=$XDG_RUNTIME_DIR/crun ;;
        runc:) _other_root=/run/crun ;;
        *) _other_root=/run/runc ;;
        esac
        for _argument in ${_container:+"$_container"} "$@"; do
            if [ -e "$_other_root/$_argument/$_other" ] && [ ! -e "$_other_root/$_argument/$_own" ]; then
                low_level=$other_low_level
                _usable=''
                # shellcheck disable=SC3013
                [ -f "$low_level" ] && [ -x "$low_level" ] && [ ! "$low_level" -ef "$0" ] && _usable=:
                case $low_level_family in
                runc) low_level_family=crun ;;
                *) low_level_family=runc ;;
                esac
                break
            fi
            [ "$_container" ] && break
        done
        ;;
    esac
fi

if [ -z "$_usable" ]; then
    fail "the low-level runtime '$low_level' is missing, cannot be executed or is gpushim itself.\
 Name runc or crun in $_config (runtime.low-level-runtimes) and run 'gpushimctl install'."
fi

# Whether anything in these files may be a request. A word that JSON hides in an escape goes to
# Python, too. Fixed words and an end at the first of them keep this fast for a spec of megabytes.
asks() {
    LC_ALL=C PATH=${PATH:+$PATH:}/usr/bin:/bin grep -qaF -e '"NVIDIA_VISIBLE_DEVICES=' \
        -e '"CUDA_VERSION=' -e '"GPUSHIM_' -e '"DOCKER_RESOURCE_' -e '"gpushim.' -e '.gpushim.' \
        -e cdi.k8s.io -e '"path":"/dev/nvidia' -e '"path": "/dev/nvidia' -e nvidia-container-devices \
        -e 'nvidia-container-runtime-hook"' -e 'nvidia-container-toolkit"' \
        -e 'nvidia-cdi-hook"' -e '"DeviceRequests":[{' ${_triggers:+-e "$_triggers"} \
        -e 'NVIDIA_VISIBLE_DEVICES\u003' -e 'CUDA_VERSION\u003' -e '\/dev' -e 'dev\/nvidia' \
        -e '\u002d' -e '\u002D' -e '\u002e' -e '\u002E' -e '\u002f' -e '\u002F' -e '\u0038' \
        -e '\u004' -e '\u005' -e '\u006' -e '\u007' -- "$@" 2>/dev/null
}

# Whether a container of this name was given something, by root or by a user of a rootless engine.
on_record() {
    [ "$_container" ] || return 1
    [ -d "$_containers/$_container" ] && return
    [ "$XDG_RUNTIME_DIR" ] && [ -d "$XDG_RUNTIME_DIR/gpushim/containers/$_container" ]
}
# Docker's record of this container in a data root.
set_record() {
    [ -f "$1/containers/$_container/hostconfig.json" ] && _record=$1/containers/$_container
}
# The same where the data root is another than is known. It is found by the files that Docker mounts from
# the record, or with --network container:X from the one beside it. If a user's mounts cover all
# three, the root file system lies beneath the data root, in <storage driver>/<directory>/<layer>,
# with devicemapper one level deeper.
find_record() {
    _found=$(
        LC_ALL=C PATH=${PATH:+$PATH:}/usr/bin:/bin grep -oaE \
            -e '"/([^"\]|\\.)*/containers/[^/"]+/(hostname|hosts|resolv\.conf)"' \
            -e '"root":\{"path":"/([^"\]|\\.)*"' -- "$_spec" 2>/dev/null
    )
    while [ "$_found" ]; do
        _line=${_found%%"$_newline"*}
        _found=${_found#"$_line"}
        _found=${_found#"$_newline"}
        _line=${_line%'"'}
        case $_line in
        '"root"'*)
            _line=${_line#'"root":{"path":"'}
            set_record "${_line%/*/*/*}" || set_record "${_line%/*/*/*/*}"
            ;;
        *)
            _line=${_line#'"'}
            set_record "${_line%/containers/*}"
            ;;
        esac && return
        # A path with an escape of JSON in it is one that only Python can read.
        case $_line in *\\*) _answer=0 ;; esac
    done
}
_newline='
'

case $_command in
create | run)
    case $_spec in
    /*) ;; # crun's --config may be a path of its own.
    *) _spec=$_bundle/$_spec ;;
    esac
    # A pipe (crun's --config) can be read once only, and what is missing the other tells best.
    [ -f "$_spec" ] || exec "$low_level" "$@"
    # What was asked of Docker by --gpus or a label is in Docker's own record, and not in the spec.
    _record='' _elsewhere=''
    case $_docker_records$_state_root in
    # With its users remapped Docker's containers are in a namespace of their own, moby-UID.GID.
    :*/moby | :*/moby/ | :*/moby-[0-9]*.[0-9]*)
        [ "$_container" ] && { set_record "$_docker" || _elsewhere=:; }
        ;;
    esac
    asks "$_spec" ${_record:+"$_record/hostconfig.json" "$_record/config.v2.json"}
    _answer=$?
    if [ "$_answer$_elsewhere" = 1: ]; then
        find_record
        if [ "$_record" ]; then
            asks "$_record/hostconfig.json" "$_record/config.v2.json"
            _answer=$?
        fi
    fi
    # Status 1 is a clear no, but an earlier container of this name may still be on record; 2 is a
    # file that cannot be read, which the low-level runtime tells best if it is the spec.
    case $_answer in
    1) on_record || exec "$low_level" "$@" ;;
    2) [ -r "$_spec" ] || exec "$low_level" "$@" ;;
    esac
    ;;
restore) [ -e "$_bundle/config.json.gpushim" ] || exec "$low_level" "$@" ;;
exec)
    # Without a process file runc takes the environment from the spec, where it is right already.
    { [ "$_process" ] && on_record; } || exec "$low_level" "$@"
    ;;
*) exec "$low_level" "$@" ;;
esac

# What in these files is a request, or may be one, for all that can be told without Python. What
# asks for nothing beyond doubt has to start although gpushim is broken.
requests() {
    (
        export LC_ALL=C PATH="${PATH:+$PATH:}/usr/bin:/bin"
        [ "$_triggers" ] && grep -oaF -e "$_triggers" -- "$@"
        # Nodes that the engine has put in are no request: they would only be put on record.
        # Escapes are written out, but for those of letters, which nobody uses to good purpose. A
        # backslash that is one itself (printf '\\u0041') begins none.
        _words=$(
            sed -e 's/\\\\/?/g' -e 's/\\u002[dD]/-/g' -e 's/\\u002[eE]/./g' \
                -e 's/\\u002[fF]/\//g' -e 's/\\u0038/8/g' -e 's/\\u003[dD]/=/g' -e 's/\\\//\//g' \
                -- "$@" |
                grep -oaE -e '"(NVIDIA_VISIBLE_DEVICES|NVIDIA_REQUIRE_CUDA|CUDA_VERSION)=[^"]*' \
                    -e '"GPUSHIM_[^"=]*=[^"]' -e '"DOCKER_RESOURCE_[^"=]*=[^"]*(GPU|MIG)-' \
                    -e '"(container\.[^"]*\.)?gpushim\.[^"]*" *:' -e '"cdi\.k8s\.io[^"]*" *:' \
                    -e '/nvidia-container-devices[/"]' \
                    -e 'nvidia-(container-runtime-hook|container-toolkit|cdi-hook)"' \
                    -e '"Driver":"[^"]*","Count"' -e '\\u00[4-7]'
        )
        # An image that has a CUDA version and demands nothing of the driver is one of the first
        # generation, which means all GPUs as long as nobody says anything else.
        case $_words in
        *'"NVIDIA_VISIBLE_DEVICES='* | *'"NVIDIA_REQUIRE_CUDA='[!$_newline]*) ;;
        *'"CUDA_VERSION='[!$_newline]*) _words='"NVIDIA_VISIBLE_DEVICES=all'$_newline$_words ;;
        esac
        # Docker itself has done all of what was asked for by CDI names.
        printf '%s\n' "$_words" | grep -vxE -e "\"NVIDIA_VISIBLE_DEVICES=$_no_request" -e '' \
            -e '"(NVIDIA_REQUIRE_CUDA|CUDA_VERSION)=.*' -e '"Driver":"cdi","Count"'
    ) 2>/dev/null
}

if [ ! -f "$_python" ] || [ ! -x "$_python" ] || [ ! -f "$_code/gpushim/entry.py" ]; then
    case $_command in
    create | run)
        [ "$_elsewhere" ] && find_record
        _words=$(requests "$_spec" ${_record:+"$_record/hostconfig.json" "$_record/config.v2.json"})
        [ "$_words" ] || exec "$low_level" "$@"
        ;;
    # The container has its GPUs; its later processes lack no more than a few variables.
    exec) exec "$low_level" "$@" ;;
    esac
    _environment=${_refresh_python%/bin/*}
    fail "this container asks for GPUs, but gpushim's Python ($_python) or code ($_code) is gone.\
 Run 'gpushimctl install' again; if its virtual environment ($_environment) is gone, make it anew,\
 install gpushim into it with its pip, and run $_environment/bin/gpushimctl install."
fi
# Python alters signal dispositions and may add LC_CTYPE: it gets what it needs to undo both.
read -r _stat <"/proc/$$/stat"
exec "$_python" -I -S "$_code/gpushim/entry.py" "$_command" "$_root" "$low_level" \
    "$low_level_family" "$_stat" "${LC_CTYPE+=$LC_CTYPE}" "$@"
