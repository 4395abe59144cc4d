package orders;

import java.util.Map;
import java.util.Objects;

import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Profile;
import org.springframework.security.access.prepost.PreAuthorize;
import org.springframework.security.config.annotation.method.configuration.EnableMethodSecurity;
import org.springframework.security.core.annotation.AuthenticationPrincipal;
import org.springframework.security.oauth2.jwt.Jwt;
import org.springframework.security.oauth2.jwt.JwtClaimValidator;
import org.springframework.security.oauth2.jwt.JwtDecoder;
import org.springframework.security.oauth2.jwt.JwtValidators;
import org.springframework.security.oauth2.jwt.NimbusJwtDecoder;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/**
 * Resource server with Spring Security, once for each configuration: with its defaults, with the
 * settings of a file, and for access tokens of RFC 9068 only.
 *
 * <p>{@code ResourceServer ISSUER FILE PORT PORT PORT}
 */
@SpringBootApplication
@EnableMethodSecurity
@RestController
public class ResourceServer {
    public static void main(String[] arguments) {
        String issuer = "--spring.security.oauth2.resourceserver.jwt.issuer-uri=" + arguments[0];
        start("defaults", arguments[2], issuer);
        start("audience", arguments[3], "--spring.config.location=file:" + arguments[1]);
        start("rfc9068", arguments[4], issuer);
    }

    private static void start(String profile, String port, String... settings) {
        new SpringApplicationBuilder(ResourceServer.class)
            .profiles(profile)
            .properties("server.address=127.0.0.1", "server.port=" + port, "spring.jmx.enabled=false")
            .run(settings);
    }

    /** The decoder that docs/guides/provider-clients.md shows. */
    @Bean
    @Profile("rfc9068")
    JwtDecoder decoder(@Value("${spring.security.oauth2.resourceserver.jwt.issuer-uri}") String issuer) {
        NimbusJwtDecoder decoder = NimbusJwtDecoder.withIssuerLocation(issuer).validateType(false).build();
        decoder.setJwtValidator(JwtValidators.createAtJwtValidator()
            .issuer(issuer)
            .audience("orders")
            .validators(checks -> checks.put("client_id", new JwtClaimValidator<>("client_id", Objects::nonNull)))
            .build());
        return decoder;
    }

    /** Who calls, for every valid token. */
    @GetMapping("/orders")
    Map<String, Object> orders(@AuthenticationPrincipal Jwt token) {
        Object typ = token.getHeaders().get("typ");
        return Map.of("sub", token.getSubject(), "client_id", token.getClaim("client_id"), "typ", typ);
    }

    /** For tokens with the scope {@code orders:write}. */
    @GetMapping("/orders/archive")
    @PreAuthorize("hasAuthority('SCOPE_orders:write')")
    Map<String, Object> archive(@AuthenticationPrincipal Jwt token) {
        return Map.of("sub", token.getSubject());
    }
}
