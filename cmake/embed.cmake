# glovebox_embed(TARGET SYMBOL FILE): compiles the bytes of FILE into TARGET; `std::string_view glovebox::SYMBOL()` gives them.
# FILE may be the output of a custom command. The bytes go in by .incbin, which costs nothing for files of any size.
set(GLOVEBOX_EMBED_TEMPLATE ${CMAKE_CURRENT_LIST_DIR}/embed.cc.in)

function(glovebox_embed target symbol file)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/embedded/${symbol}.cc)
  set(EMBED_SYMBOL ${symbol})
  set(EMBED_FILE ${file})
  configure_file(${GLOVEBOX_EMBED_TEMPLATE} ${source} @ONLY)
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${file})
  target_sources(${target} PRIVATE ${source})
endfunction()

# glovebox_yaml_to_json(YAML JSON): a custom command that makes the file JSON. Needs python3 with yaml.
function(glovebox_yaml_to_json yaml json)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(script ${CMAKE_SOURCE_DIR}/cmake/yaml_to_json.py)
  add_custom_command(OUTPUT ${json} DEPENDS ${yaml} ${script} VERBATIM
    COMMAND Python3::Interpreter ${script} ${yaml} ${json})
endfunction()
